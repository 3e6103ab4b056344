// SPDX-License-Identifier: Apache-2.0
#include "sim/training/worker.h"

#include <cmath>
#include <utility>

#include "base/check.h"

namespace spillway::sim {

TrainingWorker::TrainingWorker(const scenario::Training& job, std::uint64_t key, Calls calls)
    : job_(job), calls_(std::move(calls)), random_(key), is_reducing_(job.layers.size()) {}

void TrainingWorker::begin_step() {
  slowness_ = 1.0 + job_.jitter * random_.next_unit();
  layer_ = 0;
  go_forward();
}

void TrainingWorker::go_forward() {
  stage_ = WorkerStage::kWaiting;
  if (!is_reducing_[layer_]) {
    compute(WorkerStage::kForward, job_.layers[layer_].forward);
  }
}

void TrainingWorker::go_backward() {
  compute(WorkerStage::kBackward, job_.layers[layer_].backward);
}

void TrainingWorker::compute(WorkerStage stage, base::Duration nominal) {
  stage_ = stage;
  calls_.compute(base::nanoseconds(std::llround(slowness_ * static_cast<double>(nominal.count()))));
}

void TrainingWorker::on_computed() {
  if (stage_ == WorkerStage::kForward) {
    if (layer_ + 1 < job_.layers.size()) {
      ++layer_;
      go_forward();
    } else {
      go_backward();
    }
    return;
  }
  SPILLWAY_CHECK(stage_ == WorkerStage::kBackward);
  const std::uint32_t layer = layer_;
  is_reducing_[layer] = true;
  ++reducing_;
  if (layer > 0) {
    --layer_;
    calls_.reduce(step_, layer);
    go_backward();
  } else if (step_ + 1 < job_.steps) {
    calls_.reduce(step_++, layer);
    begin_step();
  } else {
    stage_ = WorkerStage::kDraining;
    calls_.reduce(step_, layer);
  }
}

void TrainingWorker::on_reduced(std::uint32_t layer) {
  SPILLWAY_CHECK(is_reducing_[layer]);
  is_reducing_[layer] = false;
  --reducing_;
  if (stage_ == WorkerStage::kWaiting && layer == layer_) {
    go_forward();
  } else if (stage_ == WorkerStage::kDraining && reducing_ == 0) {
    stage_ = WorkerStage::kDone;
  }
}

}  // namespace spillway::sim
