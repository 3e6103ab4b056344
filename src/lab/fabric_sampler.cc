// SPDX-License-Identifier: Apache-2.0
#include "lab/fabric_sampler.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace spillway::lab {

base::Duration sample_pause(std::size_t taken) {
  constexpr std::size_t kMostDoublings = 30;  // centuries: so that nothing overflows
  const std::size_t doublings = std::min((taken - 1) / kSamplesPerPace, kMostDoublings);
  return kSampleEvery * (std::int64_t{1} << doublings);
}

FabricSampler::FabricSampler(Look look, Tell tell)
    : look_(std::move(look)), tell_(std::move(tell)), thread_([this] { work(); }) {}

FabricSampler::~FabricSampler() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ending_.notify_one();
  thread_.join();
}

void FabricSampler::work() {
  const base::MonotonicClock clock;
  const base::Instant begin = clock.now();
  std::size_t taken = 0;
  do {
    tell_(sample_of(look_(), clock.now() - begin));
    ++taken;
  } while (pause(sample_pause(taken)));
}

bool FabricSampler::pause(base::Duration length) {
  std::unique_lock lock(mutex_);
  return !ending_.wait_for(lock, std::chrono::nanoseconds(length.count()),
                           [this] { return ends_; });
}

}  // namespace spillway::lab
