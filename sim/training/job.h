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

#include "base/duration_summary.h"
#include "base/status.h"
#include "base/units.h"
#include "collective/summed/sum_layout.h"
#include "sim/network.h"
#include "sim/scenario/training.h"
#include "sim/stacks/collective_stack.h"
#include "sim/training/urgency.h"
#include "sim/training/worker.h"

namespace spillway::sim {

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
  void look_whether_done();
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

}  // namespace spillway::sim
