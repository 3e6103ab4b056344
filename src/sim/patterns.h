// SPDX-License-Identifier: Apache-2.0
//
// Traffic patterns: each makes the workload of one job from a few numbers.
//
//   permutation       every host sends to one other and receives from one other, at random
//   incast            `senders` hosts send to the first host at once
//   all-to-all        every host sends to every other
//   parameter-server  steps of push and pull (below)
//   ring              all-reduce over a ring: 2 (N - 1) rounds of bytes / N to the next host
//   background        flows of random size between random hosts, as a Poisson process
//
// parameter-server: each of `workers` has a tensor of `bytes`, cut into `layers` buckets, each of
// them into a shard per server (`grouped`: the whole bucket goes to the one server of the worker's
// group). When all pushes of a shard are in, its server sends it back to the same workers. A worker
// begins its next step when it has all it pulls; it computes for `compute` first, back layers
// before front layers, and front layers are more urgent (priority 7). Servers are spread evenly
// over the hosts. Message ids say phase, step, bucket and shard; of pulls, which differ only by
// their receiver, the worker in place of the shard.
//
// Everything random is drawn from `seed`. Bad numbers give a sentence, not a workload.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "base/units.h"
#include "sim/workload.h"

namespace spillway::sim {

enum class PatternKind : std::uint8_t {
  kPermutation,
  kIncast,
  kAllToAll,
  kParameterServer,
  kRing,
  kBackground
};

struct PatternOptions {
  PatternKind kind = PatternKind::kPermutation;
  std::uint32_t hosts = 0;          // the job uses this many,
  std::uint32_t first_host = 0;     // from this one on
  std::uint64_t bytes = 1'000'000;  // per flow; per worker and step (parameter-server, ring)
  base::Instant start{};
  std::uint64_t seed = 1;
  Flow flow{};  // what all flows have in common: priority, importance, loss policy

  std::uint32_t steps = 1;    // parameter-server, ring; others: repeated so often
  std::uint32_t senders = 0;  // incast; 0: all but the receiver
  // parameter-server
  std::uint32_t workers = 0;  // 0: all hosts that are not servers
  std::uint32_t servers = 1;
  std::uint32_t layers = 1;
  bool grouped = false;
  base::Duration compute{};
  // background
  double load = 0.1;  // of every host's link
  base::BitRate link_rate = base::gigabits_per_second(100);
  std::uint64_t bytes_min = 10'000;  // sizes are log-uniform
  std::uint64_t bytes_max = 10'000'000;
  base::Instant until{};  // of arrivals
  base::Duration on{};    // arrivals come in bursts this long,
  base::Duration off{};   // this far apart; zero: all the time
};

std::string_view pattern_name(PatternKind kind);

base::Result<Workload> plan_workload(const PatternOptions& options);

// Flows that plan_workload() refuses to go beyond.
inline constexpr std::uint64_t kMostFlows = 20'000'000;

}  // namespace spillway::sim
