// SPDX-License-Identifier: Apache-2.0
//
// The protocol between the real ranks of a staged world (stage.h) and the stage: lines of JSON.
//
//   {"enter": 5}                            this connection is rank 5; null: it only asks
//       {"world": 8, "real": [0, 5], "strict": false, "waits": false, "memory": 9437184}
//   {"group": 3, "name": "0", "ranks": [0, 2]}    3 is the caller's number for it; [] is all ranks
//   {"call": "all_reduce", "group": 3, "ticket": 9, "bytes": 4096, "root": 0, "at": NS}
//       with "uneven" if members may pass different sizes, "patience_ms" if they wait less
//   {"send": 2, "group": 3, "tag": 0, "ticket": 9, "bytes": 4096, "at": NS}, and "receive"
//       {"ticket": 9, "end": NS} or {"ticket": 9, "code": "timed-out", "error": "..."}
//   {"waited": [NS, NS, ...]}               from, until, from, until; if `waits` was true
//   {"leave": {"late_p50_us": 8.1, "late_p99_us": 40.0, "late_us": 90.5, "waits": 120, "reads": 2}}
//
// Times are those of the machine's monotonic clock, which all real ranks share. A malformed line
// ends its connection with an explanation ({"error": "..."}). A connection that ends without leave
// means that its rank died.
//
// Pure; one thread. Limits: kMaxLineBytes, kMaxGroupNumber.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "emulate/stage/stage.h"
#include "net/system_call.h"

namespace spillway::emulate {

// A real rank's report when it leaves.
struct RankSummary {
  std::uint64_t waits = 0;
  double late_p50_us = 0.0;  // of waits that the clock ended
  double late_p99_us = 0.0;
  double late_us = 0.0;     // the maximum
  std::uint64_t reads = 0;  // places where the script read data that depends on virtual ranks
};

// The stage's answer when a real rank enters.
struct StageSettings {
  bool is_strict = false;  // reading data that depends on virtual ranks is an error
  // Memory that a real rank holds in place of what the library would hold for virtual ranks.
  std::uint64_t memory_bytes = 0;
};

class StageProtocol {
 public:
  using Connection = std::uint64_t;
  static constexpr std::size_t kMaxLineBytes = 1 << 20;
  static constexpr std::uint32_t kMaxGroupNumber = 65'535;

  // The stage must outlive it.
  StageProtocol(Stage& stage, const StageSettings& settings) : stage_(stage), settings_(settings) {}

  // Handles a line without its end. If not ok, the caller hangs up; the error is among
  // take_lines().
  base::Status line(Connection from, std::string_view text);
  void closed(Connection from);
  // Lines to be sent, in order, each with its end.
  std::vector<std::pair<Connection, std::string>> take_lines();

  const StageSettings& settings() const { return settings_; }
  const std::map<std::uint32_t, RankSummary>& summaries() const { return summaries_; }
  bool has_entered(std::uint32_t rank) const { return connections_.contains(rank); }

 private:
  struct ConnectedRank {
    std::uint32_t rank = 0;
    std::map<std::uint32_t, std::uint32_t> groups;  // by the caller's number
  };

  base::Status dispatch(Connection from, const nlohmann::json& fields);
  base::Status enter(Connection from, const nlohmann::json& fields);
  base::Status make_group(ConnectedRank& caller, const nlohmann::json& fields);
  base::Status call(ConnectedRank& caller, const nlohmann::json& fields);
  base::Status message(ConnectedRank& caller, const nlohmann::json& fields, StageMessage::End end);
  base::Status waited(const ConnectedRank& caller, const nlohmann::json& fields);
  void leave(Connection from, const nlohmann::json& fields);

  Stage& stage_;
  StageSettings settings_;
  std::map<Connection, ConnectedRank> ranks_;
  std::map<std::uint32_t, Connection> connections_;  // by rank, of all that entered
  std::map<std::uint32_t, RankSummary> summaries_;
  std::vector<std::pair<Connection, std::string>> lines_;
};

// The socket of a staged world: a Unix socket at which real ranks, in any network namespace, report
// their calls (stage_protocol.h). The server's own thread serves all ranks and owns the stage.
// Destroying the server ends the thread and removes the socket.
//
// Limits: kMaxConnections. A rank that leaves kMaxUnsent bytes unread is disconnected.

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
  void accept_connection();
  void read_from(StageProtocol::Connection from, Peer& peer);
  void send_pending();
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
base::Result<StagedWorld> query_stage(const std::string& path, base::Duration patience);

}  // namespace spillway::emulate
