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

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"
#include "emulate/stage/stage.h"

namespace spillway::emulate {

// What a real rank reports when it leaves.
struct RankSummary {
  std::uint64_t waits = 0;
  double late_p50_us = 0.0;  // of waits that the clock ended
  double late_p99_us = 0.0;
  double late_us = 0.0;     // the maximum
  std::uint64_t reads = 0;  // places where the script read data that depends on virtual ranks
};

// What a real rank is told when it enters.
struct StageTerms {
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
  StageProtocol(Stage& stage, const StageTerms& terms) : stage_(stage), terms_(terms) {}

  // Handles a line without its end. If not ok, the caller hangs up; the error is among
  // take_lines().
  base::Status line(Connection from, std::string_view text);
  void closed(Connection from);
  // Lines to be sent, in order, each with its end.
  std::vector<std::pair<Connection, std::string>> take_lines();

  const StageTerms& terms() const { return terms_; }
  const std::map<std::uint32_t, RankSummary>& summaries() const { return summaries_; }
  bool has_entered(std::uint32_t rank) const { return connections_.contains(rank); }

 private:
  struct Member {
    std::uint32_t rank = 0;
    std::map<std::uint32_t, std::uint32_t> groups;  // by the caller's number
  };

  base::Status act(Connection from, const nlohmann::json& said);
  base::Status enter(Connection from, const nlohmann::json& said);
  base::Status make_group(Member& member, const nlohmann::json& said);
  base::Status call(Member& member, const nlohmann::json& said);
  base::Status message(Member& member, const nlohmann::json& said, StageMessage::End end);
  base::Status waited(const Member& member, const nlohmann::json& said);
  void leave(Connection from, const nlohmann::json& said);

  Stage& stage_;
  StageTerms terms_;
  std::map<Connection, Member> members_;
  std::map<std::uint32_t, Connection> connections_;  // by rank, of all that entered
  std::map<std::uint32_t, RankSummary> summaries_;
  std::vector<std::pair<Connection, std::string>> lines_;
};

}  // namespace spillway::emulate
