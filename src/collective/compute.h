// SPDX-License-Identifier: Apache-2.0
//
// Work that takes a while and needs nothing but memory: sums, encoding, decoding. An operation
// hands jobs to a ComputePool; the pool runs them, on other threads or at once, and has the engine
// told (Engine::on_computed) on the engine's own thread, in any order.
//
// A job's memory belongs to its operation, which outlives it.
#pragma once

#include <cstdint>

namespace spillway::collective {

class ComputeJob {
 public:
  virtual ~ComputeJob() = default;
  // On any thread; touches what the job was given and nothing else.
  virtual void run() = 0;

  std::uint64_t operation = 0;  // whose job this is: Engine's key
  std::uint32_t tag = 0;        // the operation's own number for it
  std::uint8_t priority = 0;
};

class ComputePool {
 public:
  virtual ~ComputePool() = default;
  virtual void submit(ComputeJob& job) = 0;
};

}  // namespace spillway::collective
