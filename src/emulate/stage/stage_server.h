// SPDX-License-Identifier: Apache-2.0
//
// The door of a staged world: a socket of this machine's file system, at which real ranks, in
// whatever network namespace, say what they call (stage_protocol.h). One thread of its own serves
// them all and owns the stage; destroying the server ends it and removes the socket.
//
// Limits: kMaxConnections; a rank that does not take its lines, kMaxUnsent of them, is hung up on.
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

  // At a path that does not exist yet. The protocol outlives it and is the server's alone until
  // then.
  static base::Result<std::unique_ptr<StageServer>> start(const std::string& path,
                                                          StageProtocol& protocol, Stage& stage);
  ~StageServer();
  StageServer(const StageServer&) = delete;
  StageServer& operator=(const StageServer&) = delete;

 private:
  struct Peer {
    net::UniqueFd fd;
    std::string received;  // of a line that has not ended
    std::string unsent;
    bool is_ending = false;  // when all is sent
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

// What a stage at `path` says about its world: for processes that are to become its real ranks.
struct StagedWorld {
  std::uint32_t world = 0;
  std::vector<std::uint32_t> real;
};
base::Result<StagedWorld> ask_stage(const std::string& path, base::Duration patience);

}  // namespace spillway::emulate
