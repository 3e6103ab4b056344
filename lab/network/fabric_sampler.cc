// SPDX-License-Identifier: Apache-2.0
#include "lab/network/fabric_sampler.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace spillway::lab {
namespace {

std::uint64_t dropped_packets(const spillway_port_counters& counters) {
  std::uint64_t packets = 0;
  for (unsigned reason = SPILLWAY_REASON_QUEUE_FULL; reason < SPILLWAY_REASONS; ++reason) {
    packets += counters.packets[reason];
  }
  return packets;
}

}  // namespace

FabricSample sample_of(const fabric::FabricSnapshot& fabric, base::Duration at) {
  FabricSample sample;
  sample.at = at;
  sample.lost = fabric.lost_to_faults;
  for (const fabric::PortSnapshot& port : fabric.ports) {
    sample.sent_bytes += port.sent_bytes;
    sample.queued_bytes += port.queued_bytes;
    sample.deepest_bytes = std::max<std::uint64_t>(sample.deepest_bytes, port.queued_bytes);
    sample.trimmed += port.counters.packets[SPILLWAY_REASON_TRIMMED];
    sample.lost += dropped_packets(port.counters);
  }
  return sample;
}

base::Duration sample_pause(std::size_t taken) {
  constexpr std::size_t kMaxDoublings = 30;  // centuries; prevents overflow
  const std::size_t doublings = std::min((taken - 1) / kSamplesPerPace, kMaxDoublings);
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
