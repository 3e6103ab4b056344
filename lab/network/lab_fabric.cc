// SPDX-License-Identifier: Apache-2.0
#include "lab/network/lab_fabric.h"

#include <fmt/format.h>
#include <netinet/ether.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lab/network/links.h"
#include "switch/kernel/kernel_switch.h"

namespace spillway::lab {
namespace {

spillway_station station_of(const HostEntry& host) {
  spillway_station station = {};
  ether_addr address = {};
  // Generated text, so it parses.
  ::ether_aton_r(host.mac.c_str(), &address);
  std::ranges::copy(address.ether_addr_octet, station.address);
  return station;
}

base::Result<std::unique_ptr<kernel::KernelSwitch>> attach_switch(
    const scenario::Scenario& scenario, const HostPlan& plan,
    std::span<const fabric::PortAttachment> ports, bool traces) {
  const base::Result<kernel::SwitchPlan> switch_plan = kernel::plan_switch(scenario, ports);
  if (!switch_plan.ok()) {
    return switch_plan.status();
  }
  base::Result<std::unique_ptr<kernel::KernelSwitch>> made =
      kernel::KernelSwitch::attach(*switch_plan, {.hook = kernel::Hook::kTcBoth,
                                                  .queues_others = true,
                                                  .traces = traces,
                                                  .class_major = kPortQueuesMajor});
  if (!made.ok()) {
    return made;
  }
  base::Status status = set_up_port_queues(plan, scenario.port);
  for (std::uint32_t i = 0; i < plan.hosts.size() && status.ok(); ++i) {
    status = (*made)->add_station(station_of(plan.hosts[i]), i);
  }
  return status.ok() ? std::move(made) : status;
}

}  // namespace

std::string_view dataplane_name(Dataplane dataplane) {
  switch (dataplane) {
    case Dataplane::kAuto:
      return "auto";
    case Dataplane::kBpf:
      return "bpf";
    case Dataplane::kUser:
      break;
  }
  return "user";
}

base::Result<LabFabric> LabFabric::make(Dataplane wanted, const scenario::Scenario& scenario,
                                        const HostPlan& plan,
                                        std::span<const fabric::PortAttachment> ports,
                                        bool traces) {
  LabFabric fabric;
  if (wanted == Dataplane::kBpf) {
    base::Result<std::unique_ptr<kernel::KernelSwitch>> made =
        attach_switch(scenario, plan, ports, traces);
    if (!made.ok()) {
      return made.status();
    }
    fabric.kernel_ = std::move(made).value();
    return fabric;
  }
  base::Result<std::unique_ptr<fabric::FabricThread>> made =
      fabric::FabricThread::make(scenario, ports);
  if (!made.ok()) {
    return made.status();
  }
  fabric.user_ = std::move(made).value();
  return fabric;
}

base::Status LabFabric::finish() {
  return user_ ? user_->finish() : base::Status();
}

fabric::FabricSnapshot LabFabric::snapshot() const {
  return user_ ? user_->snapshot() : kernel_->snapshot();
}

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

// ------------------------------------------------------------------ pace

namespace {

// The tolerable lateness is one part in so many of a delay, or of a full packet's time on a link.
constexpr std::int64_t kDelaysPerLate = 10;
constexpr std::int64_t kPacketsPerLate = 4;
constexpr base::Bytes kFullPacket = base::bytes(1538);  // Ethernet's framing included

// Every path between two hosts crosses their two links.
base::Duration shortest_delay(const scenario::Topology& topology) {
  std::vector<base::Duration> delays;
  for (const scenario::Link& link : topology.links) {
    if (std::min(link.a, link.b) < topology.hosts()) {
      delays.push_back(link.delay);
    }
  }
  std::ranges::sort(delays);
  return delays.size() < 2 ? base::Duration() : delays[0] + delays[1];
}

base::Duration shortest_packet_time(const scenario::Topology& topology) {
  base::Duration shortest = base::seconds(1);
  for (const scenario::Link& link : topology.links) {
    shortest = std::min(shortest, base::transmission_time(kFullPacket, link.rate));
  }
  return shortest;
}

}  // namespace

ProcessorTimes parse_processor_times(std::string_view proc_stat) {
  constexpr int kStolen = 7;  // user, nice, system, idle, iowait, irq, softirq, steal; see proc(5)
  std::istringstream words{std::string(proc_stat.substr(0, proc_stat.find('\n')))};
  std::string name;
  words >> name;
  ProcessorTimes times;
  std::uint64_t ticks = 0;
  for (int field = 0; field <= kStolen && words >> ticks; ++field) {
    times.all += ticks;
    times.stolen = field == kStolen ? ticks : 0;
  }
  return name == "cpu" ? times : ProcessorTimes();
}

ProcessorTimes read_processor_times() {
  std::string line;
  std::ifstream file("/proc/stat");
  std::getline(file, line);
  return parse_processor_times(line);
}

double stolen_share(const ProcessorTimes& before, const ProcessorTimes& after) {
  return after.all <= before.all || after.stolen <= before.stolen
             ? 0.0
             : static_cast<double>(after.stolen - before.stolen) /
                   static_cast<double>(after.all - before.all);
}

Pace pace_of(const scenario::Topology& topology, const fabric::FabricSnapshot& fabric,
             double stolen) {
  const base::Duration limit = std::max({kMaxMeanLate, shortest_delay(topology) / kDelaysPerLate,
                                         shortest_packet_time(topology) / kPacketsPerLate});
  return {.mean_late_us = fabric.mean_late_us,
          .p99_late_us = fabric.p99_late_us,
          .limit_us = base::microseconds_of(limit),
          .missed = fabric.missed_in + fabric.missed_out,
          .stolen = stolen};
}

std::string pace_sentence(const Pace& pace) {
  if (pace.kept_up()) {
    return {};
  }
  const std::string remedy = pace.remedy.empty() ? "" : "; " + pace.remedy;
  if (pace.fabric_kept_up()) {
    return fmt::format(
               "the hypervisor took {:.0f} % of this virtual machine's CPU time (tolerable: up to "
               "{:.0f} %), and all times of this run include that",
               100 * pace.stolen, 100 * kMaxStolen) +
           remedy;
  }
  std::string sentence = fmt::format(
      "the emulated fabric fell behind: frames left {:.0f} us late on average, {:.0f} us at p99 "
      "(tolerable: up to {:.0f} on average)",
      pace.mean_late_us, pace.p99_late_us, pace.limit_us);
  if (pace.missed > 0) {
    sentence += fmt::format(", and the fabric itself lost {}", pace.missed);
  }
  return sentence + remedy;
}

}  // namespace spillway::lab
