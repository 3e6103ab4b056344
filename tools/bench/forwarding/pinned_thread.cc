// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/forwarding/pinned_thread.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "tools/bench/command_error.h"

namespace spillway::bench {

bool stay_on_processor(unsigned cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  return ::sched_setaffinity(0, sizeof(one), &one) == 0;
}

void rest() {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

PinnedThread::PinnedThread(unsigned cpu) {
  ::sched_getaffinity(0, sizeof(before_), &before_);
  if (!stay_on_processor(cpu)) {
    throw CommandError(fmt::format("cannot stay on processor {}: {}; choose another with --cpu",
                                   cpu, std::strerror(errno)));
  }
}

PinnedThread::~PinnedThread() {
  ::sched_setaffinity(0, sizeof(before_), &before_);
}

}  // namespace spillway::bench
