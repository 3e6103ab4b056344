// SPDX-License-Identifier: Apache-2.0
//
// The socket of a staged world: a Unix socket at which real ranks, in any network namespace, report
// their calls (stage_protocol.h). The server's own thread serves all ranks and owns the stage.
// Destroying the server ends the thread and removes the socket.
//
// Limits: kMaxConnections. A rank that leaves kMaxUnsent bytes unread is disconnected.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "emulate/stage/stage_protocol.h"
#include "net/system_call.h"

namespace spillway::emulate {

class StageServer {
 public:
  static constexpr std::size_t kMaxConnections = 1024;
  static constexpr std::size_t kMaxUnsent = 16 << 20;

  // `path` must not exist yet. Only the server may use the protocol and the stage while it exists,
  // and both must outlive it.
  static base::Result<std::unique_ptr<StageServer>> start(const std::string& path,
                                                          StageProtocol& protocol, Stage& stage);
  ~StageServer();
  StageServer(const StageServer&) = delete;
  StageServer& operator=(const StageServer&) = delete;

 private:
  struct Peer {
    net::UniqueFd fd;
    std::string received;  // of an unfinished line
    std::string unsent;
    bool is_ending = false;  // ends once everything is sent
  };

  StageServer(std::string path, net::UniqueFd listener, net::UniqueFd stop, StageProtocol& protocol,
              Stage& stage);
  void serve();
  void welcome();
  void hear(StageProtocol::Connection from, Peer& peer);
  void say();
  static void send_some(Peer& peer);
  void drop_ended();
  int milliseconds_to(std::optional<base::Instant> next) const;

  std::string path_;
  net::UniqueFd listener_;
  net::UniqueFd stop_;
  StageProtocol& protocol_;
  Stage& stage_;
  base::MonotonicClock clock_;
  std::map<StageProtocol::Connection, Peer> peers_;
  StageProtocol::Connection next_connection_ = 1;
  std::thread thread_;
};

// A stage's description of its world, for processes that will become its real ranks.
struct StagedWorld {
  std::uint32_t world = 0;
  std::vector<std::uint32_t> real;
};
base::Result<StagedWorld> ask_stage(const std::string& path, base::Duration patience);

}  // namespace spillway::emulate
