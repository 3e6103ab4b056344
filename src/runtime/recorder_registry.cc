// SPDX-License-Identifier: Apache-2.0
#include "runtime/recorder_registry.h"

#include <array>
#include <atomic>
#include <thread>

#include "runtime/debug_log.h"
#include "runtime/flight_recorder.h"

namespace spillway::runtime {
namespace {

// Sequentially consistent, all of it: a dump says that it runs before it looks, a leaver takes
// itself out before it looks for dumps. One of the two sees the other.
std::array<std::atomic<const FlightRecorder*>, kMostRecorders> places{};
std::atomic<int> dumps_running{0};

}  // namespace

RecorderRegistration::RecorderRegistration(const FlightRecorder& recorder) {
  for (std::size_t place = 0; place < kMostRecorders; ++place) {
    const FlightRecorder* nobody = nullptr;
    if (places[place].compare_exchange_strong(nobody, &recorder)) {
      place_ = place;
      return;
    }
  }
  log_warn("more than {} communicators: a signal does not dump the operations of the newest",
           kMostRecorders);
}

RecorderRegistration::~RecorderRegistration() {
  if (!registered()) {
    return;
  }
  places[place_].store(nullptr);
  while (dumps_running.load() != 0) {
    std::this_thread::yield();
  }
}

void dump_recorders(int fd) noexcept {
  dumps_running.fetch_add(1);
  for (const auto& place : places) {
    if (const FlightRecorder* recorder = place.load()) {
      recorder->dump(fd);
    }
  }
  dumps_running.fetch_sub(1);
}

}  // namespace spillway::runtime
