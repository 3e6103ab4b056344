// SPDX-License-Identifier: Apache-2.0
//
// What is said of members: how one was lost, where one's training stands, what somebody asks for.
//
// Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace spillway::membership {

inline constexpr std::size_t kMaxRequestRanks = 1024;  // that one request names or adds

enum class LossCause : std::uint8_t {
  kClosed,  // the connection ended: the process has, or its host says so
  kSilent,  // nothing came for too long
  kData,    // an operation failed and named it
};

// How many ranks a job may have.
struct SizeRules {
  bool may_shrink = false;  // where there is no standby left; else the job ends
  std::uint32_t min_ranks = 1;
  bool may_grow = true;  // when asked to
};

// What a process has when its training stands still.
struct Position {
  bool has_state = false;  // a standby has none
  std::uint64_t step = 0;  // at whose beginning the state is
  bool is_warm = true;     // a standby's first step would cost nothing extra

  friend bool operator==(const Position&, const Position&) = default;
};

enum class RequestKind : std::uint8_t {
  kMove,    // these ranks' places go to standbys, and they become standbys
  kRemove,  // the same, but they leave
  kGrow,    // standbys become ranks behind the last; none is named
  kEnd,     // the job ends for all; none is named
};

struct Request {
  RequestKind kind = RequestKind::kMove;
  std::vector<std::uint32_t> ranks{};  // of the present view
  std::uint32_t places = 0;            // to grow by
  std::string why{};

  friend bool operator==(const Request&, const Request&) = default;
};

}  // namespace spillway::membership
