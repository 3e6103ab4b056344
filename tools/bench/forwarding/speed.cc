// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/forwarding/speed.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "sim/scenario/scenario.h"
#include "switch/fabric/emulator.h"
#include "switch/kernel/measure/live_switch.h"
#include "switch/kernel/measure/probe_frames.h"
#include "tools/bench/command_error.h"
#include "tools/bench/forwarding/pinned_thread.h"
#include "tools/bench/forwarding/rig.h"
#include "tools/bench/progress.h"

namespace spillway::bench {
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

}  // namespace spillway::bench
