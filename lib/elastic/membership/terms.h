// SPDX-License-Identifier: Apache-2.0
//
// How a member was lost, where its training stands, and what can be asked of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace spillway::membership {

inline constexpr std::size_t kMaxRequestRanks = 1024;  // ranks that one request may name or add

enum class LossCause : std::uint8_t {
  kClosed,  // the connection ended because the process or its host did
  kSilent,  // nothing arrived for too long
  kData,    // an operation failed and blamed this member
};

// How many ranks a job may have.
struct SizeRules {
  bool may_shrink = false;  // if no standby is left; otherwise the job ends
  std::uint32_t min_ranks = 1;
  bool may_grow = true;  // on request
};

// A process's state when its training is stopped.
struct Position {
  bool has_state = false;  // a standby has none
  std::uint64_t step = 0;  // the state is that of this step's beginning
  bool is_warm = true;     // a standby's first step costs nothing extra

  friend bool operator==(const Position&, const Position&) = default;
};

enum class RequestKind : std::uint8_t {
  kMove,    // standbys take these ranks' places; the ranks become standbys
  kRemove,  // the same, but these ranks leave the job
  kGrow,    // standbys become ranks after the last one; `ranks` is empty
  kEnd,     // the job ends for all; `ranks` is empty
};

struct Request {
  RequestKind kind = RequestKind::kMove;
  std::vector<std::uint32_t> ranks{};  // ranks of the present view
  std::uint32_t places = 0;            // number of ranks to add
  std::string why{};

  friend bool operator==(const Request&, const Request&) = default;
};

}  // namespace spillway::membership
