// SPDX-License-Identifier: Apache-2.0
//
// Another library's all-reduce, measured in the same place as Spillway's, in turns with it: in
// place, because Gloo knows nothing else. All ranks make the same calls in the same order, and a
// rival uses no processor between them.
//
// Where a rival cannot take part it says why, once or for a size; that is no error. Blocking;
// throws CommandError when another rank is gone. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/allreduce/measure.h"
#include "bench/allreduce/peers.h"

namespace spillway::bench {

struct RivalTimes {
  std::vector<double> seconds{};  // of each iteration at its slowest rank; empty: not measured
  std::string why_not{};          // a sentence, at rank 0
};

class AllreduceRival {
 public:
  virtual ~AllreduceRival() = default;
  virtual const char* name() const = 0;
  // What is to be known about its figures; empty where nothing is.
  virtual std::string note() const = 0;
  virtual RivalTimes measure(std::size_t bytes) = 0;
};

struct RivalContext {
  const AllreduceWork& work;
  AllreducePeers& peers;
  std::string python{};          // an interpreter that has torch
  bool is_started_here = false;  // all ranks were, by this command, on this machine
};

// Both references outlive the rival.
std::unique_ptr<AllreduceRival> make_gloo_rival(const RivalContext& context);
std::unique_ptr<AllreduceRival> make_mpi_rival(const RivalContext& context);

// "TYPE OP COUNT WARMUP ITERATIONS IN_FLIGHT", as words: how rivals are told what to do.
std::vector<std::string> rival_task(const AllreduceWork& work, std::size_t bytes);
// What they answer: "times" with seconds, divided here by the operations in flight, or "error" with
// a sentence. No answer: they have died.
RivalTimes parse_rival_answer(const std::string& line, const AllreduceWork& work);

}  // namespace spillway::bench
