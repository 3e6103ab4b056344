// SPDX-License-Identifier: Apache-2.0
//
// Another library's all-reduce, measured in the same place as Spillway's and alternating with it.
// Always in place, because Gloo knows nothing else. All ranks must make the same calls in the same
// order, and a rival must use no CPU between them.
//
// A rival that cannot take part gives a reason, for all sizes or for one; that is no error.
// Blocking; throws CommandError when another rank is gone. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/bench/allreduce/measure.h"

namespace spillway::bench {

struct RivalTimes {
  std::vector<double> seconds{};  // per iteration at its slowest rank; empty: not measured
  std::string why_not{};          // a sentence, on rank 0
};

class AllreduceRival {
 public:
  virtual ~AllreduceRival() = default;
  virtual const char* name() const = 0;
  // A caveat about its figures; empty if there is none.
  virtual std::string note() const = 0;
  virtual RivalTimes measure(std::size_t bytes) = 0;
};

struct RivalContext {
  const AllreduceWork& work;
  AllreducePeers& peers;
  std::string python{};          // an interpreter with torch
  bool is_started_here = false;  // this command started all ranks, on this machine
};

// Both references must outlive the rival.
std::unique_ptr<AllreduceRival> make_gloo_rival(const RivalContext& context);
std::unique_ptr<AllreduceRival> make_mpi_rival(const RivalContext& context);

// The words "TYPE OP COUNT WARMUP ITERATIONS IN_FLIGHT", which tell a rival what to do.
std::vector<std::string> rival_task(const AllreduceWork& work, std::size_t bytes);
// Parses a rival's answer: "times" with seconds, which this divides by the operations in flight, or
// "error" with a sentence. An empty answer means that it died.
RivalTimes parse_rival_answer(const std::string& line, const AllreduceWork& work);

}  // namespace spillway::bench
