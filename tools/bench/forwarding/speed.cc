// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/forwarding/speed.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "sim/scenario/scenario.h"
#include "switch/dataplane/bpf/probe_maps.h"
#include "switch/dataplane/sum_frame.h"
#include "switch/fabric/emulator.h"
#include "switch/kernel/measure/live_switch.h"
#include "switch/kernel/measure/probe_frames.h"
#include "tools/bench/command_error.h"
#include "tools/bench/forwarding/rig.h"
#include "tools/bench/progress.h"

namespace spillway::bench {

// ------------------------------------------------------------------ frames

namespace {

// ------------------------------------------------------------------ one measurement

struct Measured {
  double ns = 0.0;
  double arrived_share = 0.0;
};

double nanoseconds_since(base::Instant start) {
  return static_cast<double>((base::MonotonicClock().now() - start).count());
}

// The kernel forwards on the sending thread, before send() returns.
Measured measure_in_kernel(kernel::LiveSwitch& live, const kernel::Frame& frame,
                           std::uint32_t frames) {
  throw_unless_ok(live.send(frame, frames / 10 + 1));  // warms caches and tables
  const std::uint64_t before = live.arrived();
  const base::Instant start = base::MonotonicClock().now();
  throw_unless_ok(live.send(frame, frames));
  const double nanoseconds = nanoseconds_since(start);
  const double arrived = static_cast<double>(live.arrived() - before);
  return {nanoseconds / std::max(1.0, arrived), arrived / frames};
}

Measured measure_bridge(const ForwardingRig& rig, const kernel::Frame& frame,
                        std::uint32_t frames) {
  rig.add_bridge();
  Measured measured;
  {
    const std::unique_ptr<kernel::LiveSwitch> live =
        value_or_throw(kernel::LiveSwitch::attach(rig_switch(std::nullopt)));
    rig.announce_receiver();
    measured = measure_in_kernel(*live, frame, frames);
  }
  rig.remove_bridge();
  return measured;
}

Measured measure_switch(kernel::Hook hook, const kernel::Frame& frame, std::uint32_t frames) {
  const std::unique_ptr<kernel::LiveSwitch> live =
      value_or_throw(kernel::LiveSwitch::attach(rig_switch(hook)));
  return measure_in_kernel(*live, frame, frames);
}

// ------------------------------------------------------------------ the switch in user space

double thread_cpu_ns() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

// A fabric with one switch over both ports, on a thread whose CPU time is measured.
class TimedFabric {
 public:
  explicit TimedFabric(unsigned cpu) : emulator_(make()), thread_([this, cpu] { work(cpu); }) {}
  ~TimedFabric() { (void)finish_ns(); }
  TimedFabric(const TimedFabric&) = delete;
  TimedFabric& operator=(const TimedFabric&) = delete;

  double finish_ns() {
    if (thread_.joinable()) {
      emulator_->stop();
      thread_.join();
    }
    return cpu_ns_;
  }

 private:
  static std::unique_ptr<fabric::Emulator> make() {
    const scenario::Scenario scenario = value_or_throw(
        scenario::parse_scenario("topology one-switch hosts=2 rate=200gbit delay=1us\n"
                                 "switch mode=spillway queue=64m control-queue=64m\n"));
    const std::vector<fabric::PortAttachment> ports = {
        {.interface = kRigIn, .listen = {}, .deliver = {}},
        {.interface = kRigOut, .listen = {}, .deliver = {}}};
    return value_or_throw(fabric::Emulator::make(scenario, ports));
  }
  void work(unsigned cpu) {
    (void)stay_on_processor(cpu);
    (void)emulator_->run();
    cpu_ns_ = thread_cpu_ns();
  }

  std::unique_ptr<fabric::Emulator> emulator_;
  double cpu_ns_ = 0.0;
  std::thread thread_;
};

// Sends at most as many frames at once as the sockets have room for.
std::uint64_t send_in_portions(kernel::LiveSwitch& live, const kernel::Frame& frame,
                               std::uint32_t frames) {
  constexpr std::uint32_t kPortion = 256;
  constexpr double kPatience = 20e6;  // ns
  const std::uint64_t before = live.arrived();
  for (std::uint32_t sent = 0; sent < frames; sent += kPortion) {
    const std::uint64_t target = live.arrived() + kPortion;
    throw_unless_ok(live.send(frame, kPortion));
    const base::Instant start = base::MonotonicClock().now();
    while (live.arrived() < target && nanoseconds_since(start) < kPatience) {
      std::this_thread::yield();
    }
  }
  return live.arrived() - before;
}

// Another CPU than the sender's, if there is one.
unsigned other_than(unsigned cpu) {
  return (cpu + 1) % std::max(1U, std::thread::hardware_concurrency());
}

Measured measure_user_space(const ForwardingRig& rig, const kernel::Frame& frame,
                            const ForwardingOptions& options) {
  const std::unique_ptr<kernel::LiveSwitch> live =
      value_or_throw(kernel::LiveSwitch::attach(rig_switch(std::nullopt)));
  TimedFabric fabric(other_than(options.cpu));
  rig.announce_receiver();
  const std::uint64_t arrived = send_in_portions(*live, frame, options.frames);
  const double share = static_cast<double>(arrived) / options.frames;
  return {fabric.finish_ns() / std::max(1.0, static_cast<double>(arrived)), share};
}

// ------------------------------------------------------------------ all of them

enum class Forwarder : std::uint8_t { kBridge, kXdp, kTc, kUserSpace };
constexpr Forwarder kForwarders[] = {Forwarder::kBridge, Forwarder::kXdp, Forwarder::kTc,
                                     Forwarder::kUserSpace};
constexpr std::uint32_t kSizes[] = {1514, 128};

std::string_view forwarder_name(Forwarder forwarder) {
  switch (forwarder) {
    case Forwarder::kBridge:
      return "Linux bridge";
    case Forwarder::kXdp:
      return "switch at XDP";
    case Forwarder::kTc:
      return "switch at tc";
    case Forwarder::kUserSpace:
      break;
  }
  return "switch in user space";
}

Measured measure(Forwarder forwarder, const ForwardingRig& rig, const kernel::Frame& frame,
                 const ForwardingOptions& options) {
  switch (forwarder) {
    case Forwarder::kBridge:
      return measure_bridge(rig, frame, options.frames);
    case Forwarder::kXdp:
      return measure_switch(kernel::Hook::kXdp, frame, options.frames);
    case Forwarder::kTc:
      return measure_switch(kernel::Hook::kTcBoth, frame, options.frames);
    case Forwarder::kUserSpace:
      break;
  }
  return measure_user_space(rig, frame, options);
}

// The median by time.
Measured median(std::vector<Measured> rounds) {
  std::ranges::sort(rounds, {}, &Measured::ns);
  return rounds[rounds.size() / 2];
}

}  // namespace

std::vector<ForwardingSpeed> measure_forwarding(const ForwardingOptions& options) {
  constexpr std::size_t kKinds = std::size(kForwarders) * std::size(kSizes);
  std::array<std::vector<Measured>, kKinds> rounds;
  const ForwardingRig rig;
  const PinnedThread pinned(options.cpu);
  Progress progress(options.rounds * kKinds);
  for (unsigned round = 0; round < options.rounds; ++round) {
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      const Forwarder forwarder = kForwarders[kind % std::size(kForwarders)];
      const std::uint32_t bytes = kSizes[kind / std::size(kForwarders)];
      progress.step(forwarder_name(forwarder));
      rest();
      const kernel::Frame frame = rig_data_frame(bytes);
      rounds[kind].push_back(measure(forwarder, rig, frame, options));
    }
  }
  std::vector<ForwardingSpeed> speeds;
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    const std::size_t bridge = kind / std::size(kForwarders) * std::size(kForwarders);
    const Measured measured = median(rounds[kind]);
    speeds.push_back({.forwarder = std::string(forwarder_name(kForwarders[kind - bridge])),
                      .frame_bytes = kSizes[kind / std::size(kForwarders)],
                      .ns = measured.ns,
                      .arrived_share = measured.arrived_share,
                      .of_bridge = median(rounds[bridge]).ns / measured.ns});
  }
  return speeds;
}

// ------------------------------------------------------------------ sums

namespace {

struct SumForwarder {
  kernel::Hook hook;
  bool adds;
  std::string_view name;
};
constexpr std::array<SumForwarder, 4> kSumForwarders = {{
    {kernel::Hook::kXdp, false, "switch at XDP, forwards"},
    {kernel::Hook::kXdp, true, "switch at XDP, adds"},
    {kernel::Hook::kTcBoth, false, "switch at tc, forwards"},
    {kernel::Hook::kTcBoth, true, "switch at tc, adds"},
}};

constexpr spillway_sum_config kRigSums = {.slots = 4096,
                                          .lease_us = SPILLWAY_SUM_LEASE_US,
                                          .pools = 1,
                                          .policy = SPILLWAY_SUM_PREEMPTIVE,
                                          .level = 0,
                                          .reserved = {}};

kernel::Frame rig_sum_frame() {
  spillway_sum_image image = {};
  image.fields.common.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_SUM;
  image.fields.common.job = 1;
  image.fields.kind = SPILLWAY_SUM_PART;
  image.fields.need[0] = SPILLWAY_FEED_RANKS;
  std::vector<std::uint8_t> payload(SPILLWAY_SUM_PACKET, 1);
  std::memcpy(payload.data(), &image, sizeof(image));
  return kernel::frame_of({}, payload);
}

std::uint64_t taken(const spillway_sum_counters& counters) {
  return counters.outcomes[SPILLWAY_SUM_DID_CLAIM] + counters.outcomes[SPILLWAY_SUM_DID_ADD] +
         counters.outcomes[SPILLWAY_SUM_DID_EMIT];
}

SumForwarding measure_once(const SumForwarder& forwarder, std::uint32_t frames) {
  kernel::LiveSwitchOptions options = rig_switch(forwarder.hook);
  options.feeder = kRigFeeder;
  options.sums = kRigSums;
  const std::unique_ptr<kernel::LiveSwitch> live =
      value_or_throw(kernel::LiveSwitch::attach(options));
  const kernel::Frame frame =
      forwarder.adds ? rig_sum_frame()
                     : rig_data_frame(SPILLWAY_ETHERNET_HEADER + SPILLWAY_SUM_DATAGRAM);
  const auto count = [&] { return forwarder.adds ? taken(live->sums()) : live->arrived(); };
  throw_unless_ok(live->send(frame, frames / 10 + 1));  // warms caches and tables
  const std::uint64_t before = count();
  const base::Instant start = base::MonotonicClock().now();
  throw_unless_ok(live->send(frame, frames));
  const auto nanoseconds = static_cast<double>((base::MonotonicClock().now() - start).count());
  const auto came = static_cast<double>(count() - before);
  return {.forwarder = std::string(forwarder.name),
          .adds = forwarder.adds,
          .ns = nanoseconds / std::max(1.0, came),
          .taken_share = came / frames};
}

}  // namespace

std::vector<SumForwarding> measure_sum_forwarding(const ForwardingOptions& options) {
  std::array<std::vector<SumForwarding>, kSumForwarders.size()> rounds;
  const ForwardingRig rig;
  const PinnedThread pinned(options.cpu);
  Progress progress(options.rounds * kSumForwarders.size());
  for (unsigned round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < kSumForwarders.size(); ++i) {
      progress.step(kSumForwarders[i].name);
      rest();
      rounds[i].push_back(measure_once(kSumForwarders[i], options.frames));
    }
  }
  std::vector<SumForwarding> medians;
  for (std::vector<SumForwarding>& round : rounds) {
    std::ranges::sort(round, {}, &SumForwarding::ns);
    medians.push_back(round[round.size() / 2]);
  }
  return medians;
}

// ------------------------------------------------------------------ garbage

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
  std::vector<std::uint8_t> payload(sizeof(spillway_planes_header));
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
  // One at a time: a marked or trimmed frame must not be sent again
  // (kernel/measure/program_costs.h).
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
