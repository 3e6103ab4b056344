// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/forwarding/switch_flood.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "switch/kernel/measure/live_switch.h"
#include "switch/kernel/measure/probe_frames.h"
#include "tools/bench/command_error.h"
#include "tools/bench/forwarding/pinned_thread.h"
#include "tools/bench/forwarding/rig.h"

namespace spillway::bench {
namespace {

constexpr std::uint32_t kFloodRate = (1U << SPILLWAY_RATE_SHIFT) / 80;  // 100 Mbit/s
constexpr double kGarbageOfLink = 10.0;
constexpr double kSpillwayOfLink = 0.4;
constexpr double kFloodNs = 1e9;

double rate_bytes_per_ns() {
  return static_cast<double>(kFloodRate) / (1U << SPILLWAY_RATE_SHIFT);
}

double bytes_on_wire(const kernel::Frame& frame) {
  return static_cast<double>(frame.size() + SPILLWAY_WIRE_OVERHEAD);
}

// Sends frames of one kind at a share of the link's rate.
class Stream {
 public:
  Stream(kernel::Frame frame, double of_link, std::uint32_t most_at_once)
      : frame_(std::move(frame)),
        per_ns_(of_link * rate_bytes_per_ns() / bytes_on_wire(frame_)),
        most_at_once_(most_at_once) {}

  void catch_up(kernel::LiveSwitch& live, double elapsed_ns) {
    const auto due = static_cast<std::uint64_t>(elapsed_ns * per_ns_);
    while (sent_ < due) {
      const auto frames =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(due - sent_, most_at_once_));
      throw_unless_ok(live.send(frame_, frames));
      sent_ += frames;
    }
  }
  std::uint64_t sent() const { return sent_; }
  double of_link(double elapsed_ns) const {
    return static_cast<double>(sent_) * bytes_on_wire(frame_) / (elapsed_ns * rate_bytes_per_ns());
  }

 private:
  kernel::Frame frame_;
  double per_ns_;
  std::uint32_t most_at_once_;
  std::uint64_t sent_ = 0;
};

// 64 bytes on the wire with the check sequence, of no known protocol.
kernel::Frame noise() {
  return kernel::frame_of({}, std::vector<std::uint8_t>(18, 0xA5));
}

// A switch takes it for a Spillway control packet, which has a queue of its own.
kernel::Frame forged_control() {
  std::vector<std::uint8_t> payload(sizeof(spillway_data_header));
  payload[0] = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_PROBE;
  return kernel::frame_of({.traffic_class = SPILLWAY_DSCP_CONTROL << 2}, payload);
}

FloodOutcome outcome_of(const kernel::LiveSwitch& live, const Stream& data, double garbage_of_link,
                        double elapsed_ns) {
  const fabric::PortSnapshot port = live.output_port();
  const auto& ours = port.counters.by_class[kRigPriority];
  const double whole =
      static_cast<double>(ours[SPILLWAY_REASON_ADMITTED] + ours[SPILLWAY_REASON_MARKED] +
                          ours[SPILLWAY_REASON_DIVERTED]);
  const auto sent = static_cast<double>(data.sent());
  const double let_in = static_cast<double>(port.sent_bytes - port.queued_bytes +
                                            port.sent_packets * SPILLWAY_WIRE_OVERHEAD);
  return {
      .link_mbit = rate_bytes_per_ns() * 8e3,
      .garbage_of_link = garbage_of_link,
      .spillway_of_link = data.of_link(elapsed_ns),
      .spillway_arrived_share = (whole + static_cast<double>(ours[SPILLWAY_REASON_TRIMMED])) / sent,
      .spillway_whole_share = whole / sent,
      .admitted_of_link = let_in / (elapsed_ns * rate_bytes_per_ns()),
      .arrived_of_sent =
          static_cast<double>(live.arrived()) / static_cast<double>(port.sent_packets)};
}

}  // namespace

FloodOutcome measure_flood(unsigned cpu) {
  const ForwardingRig rig;
  const PinnedThread pinned(cpu);
  kernel::LiveSwitchOptions slow = rig_switch(kernel::Hook::kXdp);
  slow.link.rate = kFloodRate;
  slow.queues_others = true;
  const std::unique_ptr<kernel::LiveSwitch> live = value_or_throw(kernel::LiveSwitch::attach(slow));
  constexpr std::uint32_t kMany = 10'000;
  Stream garbage(noise(), kGarbageOfLink / 2, kMany);
  Stream forged(forged_control(), kGarbageOfLink / 2, kMany);
  // One at a time: a marked or trimmed frame must not be sent again (kernel/measure/program_run.h).
  Stream data(rig_data_frame(1514), kSpillwayOfLink, 1);
  const base::Instant start = base::MonotonicClock().now();
  double elapsed = 0.0;
  while (elapsed < kFloodNs) {
    elapsed = static_cast<double>((base::MonotonicClock().now() - start).count());
    garbage.catch_up(*live, elapsed);
    forged.catch_up(*live, elapsed);
    data.catch_up(*live, elapsed);
    // The kernel throttles urgent threads that never sleep.
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  return outcome_of(*live, data, garbage.of_link(elapsed) + forged.of_link(elapsed), elapsed);
}

}  // namespace spillway::bench
