// SPDX-License-Identifier: Apache-2.0
//
// A training job on its own hosts: its workers, the real collectives below them, and its result.
// Gradients are meaningless numbers, the same in every step; all ranks share their memory.
//
// A job ends when all its workers are done, or fails with its first failed all-reduce. Network and
// description must outlive it; it must outlive the network's run. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "base/status.h"
#include "base/units.h"
#include "collective/summed/sum_piece.h"
#include "sim/network.h"
#include "sim/scenario/aggregation.h"
#include "sim/scenario/scenario.h"
#include "sim/stacks/collective_stack.h"

namespace spillway::sim {

// ------------------------------------------------------------------ a job

// The urgency of a layer's packets for slots in switches, as ESA (arXiv 2201.06398) weighs it:
//
//   (1 / T) * (L / l) * (communication / computation)
//
// T is the job's remaining time in seconds, l the layer, from 1 at the front, L the number of
// layers. This favours jobs that are nearly done, front layers, and jobs that wait for the network.
// Packets carry the logarithm in 8 bits (wire/sum_packet.h). Its steps per doubling are chosen to
// tell apart weights from 2^-15 to 2^21. 0 is reserved for others. Pure functions.

// The two times of a job's step, each without the other.
struct StepCosts {
  base::Duration computation;
  base::Duration communication;
};

// The weight as 8 bits, clamped at both ends.
std::uint8_t quantised_urgency(double weight);

std::uint8_t esa_urgency(const StepCosts& costs, std::uint32_t steps_left, std::uint32_t layer,
                         std::uint32_t layers);

// Front layers are sent first: 7 for the first layer, 0 for the last of many.
std::uint8_t layer_priority(std::uint32_t layer, std::uint32_t layers);

// One worker's training steps:
//
//   forward 0, 1, .. L-1   layer by layer; a layer waits for its all-reduce of the step before
//   backward L-1, .. 0     layer by layer; each hands its gradients to an all-reduce
//
// It computes one layer at a time, and is done when the all-reduces of its last step are. A state
// machine without a clock: after compute(duration) the caller waits that long, then calls
// on_computed(). One thread.

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

enum class TrainingEnd : std::uint8_t {
  kDone,
  kFailed,
  kCutOff,  // the limit was reached
};

struct TrainingResult {
  std::string name;
  TrainingEnd end = TrainingEnd::kCutOff;
  base::Status failure;
  base::Duration completion;  // since its start; only if done
  StepCosts costs;
  base::DurationSummary reduce;  // durations of all-reduces, from a worker's call to its end there
  std::uint64_t chunks = 0;      // per step
  std::uint64_t sums_sent = 0;
  std::uint64_t sums_repeated = 0;
  std::uint64_t flushes_sent = 0;
};

class TrainingJob {
 public:
  // The job's number for switches, its hosts, and the seed of its random draws.
  struct Place {
    std::uint16_t number = 0;
    HostId first_host = 0;
    base::BitRate rate;
    std::uint64_t seed = 1;
  };

  // `on_end` is called once.
  TrainingJob(const scenario::Training& description, const Place& place, Network& network,
              std::function<void()> on_end);
  TrainingJob(const TrainingJob&) = delete;
  TrainingJob& operator=(const TrainingJob&) = delete;

  // Adds the job's stacks to the network and schedules its start.
  base::Status add();
  TrainingResult result() const;

 private:
  base::Status measure_costs();
  CollectiveStackConfig config(std::uint16_t rank) const;
  base::Status add_stack(std::uint16_t rank);
  void add_worker(std::uint16_t rank);
  collective::Group group(std::uint16_t rank) const {
    return {rank, static_cast<std::uint16_t>(description_.hosts()), description_.servers};
  }
  collective::Operation operation(std::uint32_t step, std::uint32_t layer) const;
  void compute(std::uint16_t rank, base::Duration duration);
  void reduce(std::uint16_t rank, std::uint32_t step, std::uint32_t layer);
  void on_reduced(std::uint16_t rank, std::uint64_t token, const base::Status& status);
  void check_done();
  void end(TrainingEnd end);

  const scenario::Training& description_;
  Place place_;
  Network& network_;
  std::function<void()> on_end_;
  StepCosts costs_;
  std::uint64_t chunks_ = 0;
  std::vector<float> gradients_;
  mutable std::vector<float> sums_;
  std::vector<CollectiveStack*> stacks_;
  std::deque<TrainingWorker> workers_;
  std::vector<std::vector<base::Instant>> called_;  // by rank and layer
  std::vector<base::Duration> reduces_;
  TrainingEnd end_ = TrainingEnd::kCutOff;
  base::Status failure_;
  base::Instant ended_;
};

// ------------------------------------------------------------------ all jobs of a scenario

// Runs all training jobs of a scenario (`training` lines, scenario/aggregation.h) on one network:
// `spillway sim jobs`. The result is a function of the scenario alone.
//
// Jobs are numbered from 0 in the order of their lines; static switches assign their slots by these
// numbers. Faults of links, hosts and switches are allowed; clock skew and flows (`job`,
// `background`, `tenant`) are refused.

struct TrainingsResult {
  bool finished = false;  // all jobs ended or failed
  base::Instant end;
  std::uint64_t events = 0;
  std::vector<TrainingResult> jobs;
  NetworkTotals network;

  // Mean over the jobs that are done.
  base::Duration mean_completion() const;
};

base::Result<TrainingsResult> run_trainings(const scenario::Scenario& scenario);

}  // namespace spillway::sim
