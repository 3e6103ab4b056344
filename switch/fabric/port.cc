// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/port.h"

#include "base/clock.h"

namespace spillway::fabric {

void Port::read(Intake& intake) {
  for (std::size_t total = 0; total < kFramesPerRead;) {
    const std::size_t count = in_.receive(fd());
    const base::Instant now = base::MonotonicClock().now();
    base::Instant latest = now;
    for (std::size_t i = 0; i < count; ++i) {
      const Received received = in_.message(i, now);
      latest = received.notes.at;
      take(received, intake);
    }
    total += count;
    if (count < ReceiveBatch::kMessages) {
      return;
    }
    if (total >= kFramesPerRead) {
      intake.stopped_at(latest);
    }
  }
}

}  // namespace spillway::fabric
