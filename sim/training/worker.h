// SPDX-License-Identifier: Apache-2.0
//
// One worker's training steps:
//
//   forward 0, 1, .. L-1   layer by layer; a layer waits for its all-reduce of the step before
//   backward L-1, .. 0     layer by layer; each hands its gradients to an all-reduce
//
// It computes one layer at a time, and is done when the all-reduces of its last step are. A state
// machine without a clock: after compute(duration) the caller waits that long, then calls
// on_computed(). One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/random.h"
#include "base/units.h"
#include "sim/scenario/training.h"

namespace spillway::sim {

enum class WorkerStage : std::uint8_t {
  kWaiting,   // for the all-reduce of the next layer
  kForward,   // computes
  kBackward,  // computes
  kDraining,  // has computed everything; all-reduces are in progress
  kDone,
};

class TrainingWorker {
 public:
  struct Calls {
    std::function<void(base::Duration)> compute;
    std::function<void(std::uint32_t step, std::uint32_t layer)> reduce;
  };

  // The job must outlive the worker; `key` seeds its random slowness.
  TrainingWorker(const scenario::Training& job, std::uint64_t key, Calls calls);

  void start() { begin_step(); }
  void on_computed();
  void on_reduced(std::uint32_t layer);

  WorkerStage stage() const { return stage_; }
  std::uint32_t step() const { return step_; }  // from 0

 private:
  void begin_step();
  void go_forward();
  void go_backward();
  void compute(WorkerStage stage, base::Duration nominal);

  const scenario::Training& job_;
  Calls calls_;
  base::RandomSequence random_;
  WorkerStage stage_ = WorkerStage::kWaiting;
  std::uint32_t step_ = 0;
  std::uint32_t layer_ = 0;
  double slowness_ = 1.0;          // of this step
  std::vector<bool> is_reducing_;  // by layer
  std::uint32_t reducing_ = 0;     // number of layers being reduced
};

}  // namespace spillway::sim
