// SPDX-License-Identifier: Apache-2.0
#include "lab/trace/lab_trace.h"

#include <netinet/ether.h>

#include <algorithm>
#include <ctime>

#include "base/clock.h"
#include "lab/network/namespaces.h"
#include "net/system_call.h"

namespace spillway::lab {
namespace {

// Size of all hosts' rings together. Also the number of arrivals and events kept beyond that of
// departures, because what one look finds is not in order.
constexpr std::size_t kRingFrames = 1 << 17;
constexpr std::size_t kFewestFrames = 1 << 11;
constexpr base::Duration kLooksEvery = base::milliseconds(1);
// After stop(): ends when nothing has come for kQuiet, and after kLongest at the latest.
constexpr base::Duration kQuiet = base::milliseconds(20);
constexpr base::Duration kLongest = base::milliseconds(500);
// The two clocks are compared only if both were read within this time; else the thread was
// interrupted.
constexpr base::Duration kAtOnce = base::microseconds(1);

HardwareAddress address_of(const HostEntry& host) {
  HardwareAddress address;
  ether_addr parsed = {};
  ::ether_aton_r(host.mac.c_str(), &parsed);  // generated text, so it parses
  std::ranges::copy(parsed.ether_addr_octet, address.begin());
  return address;
}

void pause(base::Duration time) {
  const timespec wait = net::timespec_of(time);
  ::nanosleep(&wait, nullptr);
}

}  // namespace

base::Result<std::unique_ptr<PacketRecorder>> PacketRecorder::start(
    const HostPlan& plan, std::span<const net::UniqueFd> namespaces,
    const kernel::KernelSwitch* fabric, std::size_t packets) {
  std::unique_ptr<PacketRecorder> recorder(new PacketRecorder(packets));
  base::Status status = recorder->open_taps(plan, namespaces);
  if (status.ok() && fabric != nullptr) {
    status = recorder->open_events(*fabric);
  }
  if (!status.ok()) {
    return status;
  }
  recorder->thread_ = std::thread([self = recorder.get()] { self->work(); });
  return recorder;
}

base::Status PacketRecorder::open_taps(const HostPlan& plan,
                                       std::span<const net::UniqueFd> namespaces) {
  const std::size_t frames = std::max(kRingFrames / plan.hosts.size(), kFewestFrames);
  for (std::uint32_t host = 0; host < plan.hosts.size(); ++host) {
    log_.hosts.push_back(plan.hosts[host].name);
    hosts_[address_of(plan.hosts[host])] = host;
    const auto open = [&]() -> base::Status {
      base::Result<PacketTap> tap = PacketTap::open(std::string(kHostInterface), frames);
      if (!tap.ok()) {
        return tap.status();
      }
      taps_.push_back(std::move(tap).value());
      return {};
    };
    if (base::Status status = in_network_namespace(namespaces[host].get(), open); !status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status PacketRecorder::open_events(const kernel::KernelSwitch& fabric) {
  base::Result<std::unique_ptr<kernel::SwitchEvents>> events =
      kernel::SwitchEvents::open(fabric, packets_ + kRingFrames);
  if (!events.ok()) {
    return events.status();
  }
  events_ = std::move(events).value();
  log_.ports = events_->ports();
  return {};
}

PacketRecorder::~PacketRecorder() {
  stop();
}

void PacketRecorder::stop() {
  stops_ = true;
  if (thread_.joinable()) {
    thread_.join();
  }
}

PacketLog PacketRecorder::finish() {
  stop();
  for (PacketTap& tap : taps_) {
    log_.missed += tap.missed();
  }
  if (events_ != nullptr) {
    log_.events = events_->take();
  }
  return std::move(log_);
}

// ------------------------------------------------------------------ on the recorder's thread

void PacketRecorder::work() {
  const base::MonotonicClock clock;
  base::Instant last_seen = clock.now();
  while (!stops_) {
    last_seen = look() ? clock.now() : last_seen;
    pause(kLooksEvery);
  }
  const base::Instant asked = clock.now();
  for (base::Instant now = asked; now - last_seen < kQuiet && now - asked < kLongest;
       now = clock.now()) {
    last_seen = look() ? now : last_seen;
    pause(kLooksEvery);
  }
  look();
}

bool PacketRecorder::look() {
  measure_clocks();
  bool any = events_ != nullptr && events_->read();
  for (std::uint32_t host = 0; host < taps_.size(); ++host) {
    any |= taps_[host].read([&](const TappedFrame& frame) { take(frame, host); });
  }
  return any;
}

// Repeated each time, because the time of day may be set. An interrupted measurement does not
// count: it would put arrivals before their causes.
void PacketRecorder::measure_clocks() {
  const base::MonotonicClock clock;
  const bool is_first = ahead_ == base::Duration();
  for (int attempt = 0; attempt < (is_first ? 1000 : 1); ++attempt) {
    const base::Instant before = clock.now();
    const base::Duration now = base::time_of_day();
    const base::Duration took = clock.now() - before;
    if (took <= kAtOnce || is_first) {
      ahead_ = now - before.since_zero() - took / 2;
    }
    if (took <= kAtOnce) {
      return;
    }
  }
}

void PacketRecorder::take(const TappedFrame& frame, std::uint32_t host) {
  std::optional<PacketSight> sight = read_sight(frame.bytes, frame.length);
  if (!sight) {
    return;
  }
  const auto to = hosts_.find(receiver_of(frame.bytes));
  if (to == hosts_.end()) {
    return;
  }
  sight->at = base::Instant(frame.time_of_day - ahead_);
  sight->host = host;
  sight->to = to->second;
  sight->leaves = frame.leaves;
  keep(*sight);
}

void PacketRecorder::keep(const PacketSight& sight) {
  std::size_t& kept = sight.leaves ? left_ : arrived_;
  if (kept < (sight.leaves ? packets_ : packets_ + kRingFrames)) {
    ++kept;
    log_.sights.push_back(sight);
  } else if (sight.leaves) {
    ++log_.left_out;
  }
}

base::Result<LabTrace> LabTrace::start(const TraceOptions& options, const HostPlan& plan,
                                       std::span<const net::UniqueFd> namespaces,
                                       const kernel::KernelSwitch* fabric) {
  if (namespaces.size() != plan.hosts.size()) {
    return base::Status(base::StatusCode::kUnavailable,
                        "packets can be followed where hosts have interfaces of their own: not "
                        "with --isolation none");
  }
  base::Result<TraceFile> file = TraceFile::create(options.path);
  if (!file.ok()) {
    return file.status();
  }
  base::Result<std::unique_ptr<PacketRecorder>> recorder =
      PacketRecorder::start(plan, namespaces, fabric, options.packets);
  if (!recorder.ok()) {
    return recorder.status();
  }
  return LabTrace(std::move(file).value(), std::move(recorder).value());
}

}  // namespace spillway::lab
