// SPDX-License-Identifier: Apache-2.0
//
// In each round the loop notes the time, reads every port that has frames, and runs the network up
// to that time. It writes what was delivered or hands it to a writer, and sleeps until a frame
// comes or the network has something to do. By then all that arrived before the noted time has been
// read, so the network never learns of a frame too late. If a port had more frames than one read
// takes, the network runs only up to what was read.
#include "switch/fabric/emulator.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/random.h"
#include "net/system_call.h"
#include "sim/network.h"
#include "sim/scenario/scenario.h"
#include "sim/stacks/tenants.h"
#include "switch/fabric/ingress.h"
#include "switch/fabric/port.h"
#include "switch/fabric/transmit_queue.h"

namespace spillway::fabric {

namespace {

// Minimum time between rounds: many frames share the cost of a round, and none is later by more.
constexpr base::Duration kRest = base::microseconds(20);

// While no frame of a real host is under way, tenants' traffic runs in steps of this length. It
// matters only once a frame comes, and that ends the step.
constexpr base::Duration kQuietStep = base::microseconds(200);

base::Status check_ports(std::span<const PortAttachment> ports, std::uint32_t hosts) {
  if (ports.size() != hosts) {
    return base::invalid_argument(
        fmt::format("{} ports for {} hosts: every host has exactly one", ports.size(), hosts));
  }
  const auto is_relay = [](const PortAttachment& port) { return port.interface.empty(); };
  if (std::ranges::any_of(ports, is_relay) && !std::ranges::all_of(ports, is_relay)) {
    return base::invalid_argument(
        "some ports are interfaces and some are relays; a fabric has one kind");
  }
  return {};
}

base::Status check_faults(const scenario::Scenario& scenario) {
  const bool skews = std::ranges::any_of(scenario.faults, [](const scenario::Fault& fault) {
    return fault.kind == scenario::FaultKind::kClockSkew;
  });
  return skews ? base::invalid_argument(
                     "a fault of kind=skew: an emulated fabric's hosts have clocks of their own")
               : base::Status();
}

PortSnapshot snapshot_of(const sim::OutputPort& port) {
  PortSnapshot snapshot;
  snapshot.name = port.name();
  snapshot.counters = port.counters();
  snapshot.sent_packets = port.transmitter().counters().packets;
  snapshot.sent_bytes = port.transmitter().counters().bytes;
  snapshot.lost_to_faults = port.transmitter().counters().lost;
  for (const std::uint32_t bytes : port.state().bytes) {
    snapshot.queued_bytes += bytes;
  }
  return snapshot;
}

}  // namespace

class Emulator::Impl {
 public:
  Impl(const scenario::Topology& topology, const scenario::Scenario& scenario,
       std::span<const PortAttachment> ports)
      : network_(topology, scenario.seed),
        ingress_(network_.pool(), topology.hosts()),
        directory_(ports),
        trim_lengths_(scenario.port.lengths) {}

  base::Status open(std::span<const PortAttachment> ports);
  void add_writers(unsigned count);
  base::Status add_traffic(const scenario::Scenario& scenario, const scenario::Topology& topology);
  base::Status run();
  void stop();
  FabricSnapshot snapshot() const;

 private:
  base::Status open_port(const PortAttachment& attachment, scenario::HostId host);
  void wait(base::Instant round_began);
  void round(base::Instant now);
  void read_ports();
  void inject();
  base::Instant virtual_time(base::Instant at) const { return base::Instant(at - zero_); }
  void publish(base::Instant now);
  FabricSnapshot take_snapshot();

  sim::Tenants tenants_;  // must outlive the network, which has their stacks
  sim::Network network_;
  Ingress ingress_;
  RelayDirectory directory_;
  std::uint8_t trim_lengths_;  // enum spillway_lengths
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<PortStack*> stacks_;  // owned by the network
  std::vector<pollfd> polled_;      // the ports', then stop_event_
  net::UniqueFd stop_event_;
  std::atomic<bool> stopping_ = false;
  base::Instant zero_;  // start of the network's time
  base::Instant published_;
  std::atomic<bool> unpublished_ = false;  // something happened since `published_`
  mutable std::mutex mutex_;
  FabricSnapshot snapshot_;                       // under mutex_
  std::vector<std::unique_ptr<Writer>> writers_;  // used by the ports; destroyed first
};

// ------------------------------------------------------------------ setting up

base::Status Emulator::Impl::open(std::span<const PortAttachment> ports) {
  stop_event_ = net::UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!stop_event_.valid()) {
    return net::system_error("make an event", errno);
  }
  for (scenario::HostId host = 0; host < ports.size(); ++host) {
    if (base::Status status = open_port(ports[host], host); !status.ok()) {
      return status;
    }
  }
  polled_.push_back({stop_event_.get(), POLLIN, 0});
  return {};
}

base::Status Emulator::Impl::open_port(const PortAttachment& attachment, scenario::HostId host) {
  if (attachment.interface.empty()) {
    base::Result<std::unique_ptr<RelayPort>> port = RelayPort::open(attachment, host, directory_);
    if (!port.ok()) {
      return port.status();
    }
    ports_.push_back(std::move(port).value());
  } else {
    base::Result<std::unique_ptr<PacketPort>> port =
        PacketPort::open(attachment.interface, host, trim_lengths_);
    if (!port.ok()) {
      return port.status();
    }
    ports_.push_back(std::move(port).value());
  }
  polled_.push_back({ports_.back()->fd(), POLLIN, 0});
  auto stack = std::make_unique<PortStack>(network_.pool(), *ports_.back(), zero_);
  stacks_.push_back(stack.get());
  network_.add_stack(host, std::move(stack));
  return {};
}

void Emulator::Impl::add_writers(unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    writers_.push_back(std::make_unique<Writer>());
  }
  for (std::size_t i = 0; i < ports_.size() && count > 0; ++i) {
    ports_[i]->use(*writers_[i % count]);
  }
}

base::Status Emulator::Impl::add_traffic(const scenario::Scenario& scenario,
                                         const scenario::Topology& topology) {
  if (scenario.tenants.size() >= sim::kMaxStacks) {
    return base::invalid_argument(fmt::format("at most {} tenants", sim::kMaxStacks - 1));
  }
  if (base::Status status = tenants_.add_to(network_, topology, scenario.tenants); !status.ok()) {
    return status;
  }
  for (const scenario::Fault& fault : scenario.faults) {
    if (base::Status status = network_.add_fault(fault); !status.ok()) {
      return status;
    }
  }
  snapshot_ = take_snapshot();
  return {};
}

// ------------------------------------------------------------------ running

base::Status Emulator::Impl::run() {
  const RealTimePriority real_time;
  const base::MonotonicClock clock;
  zero_ = clock.now();
  published_ = zero_;
  while (!stopping_) {
    const base::Instant now = clock.now();
    round(now);
    publish(now);
    wait(now);
  }
  for (const auto& port : ports_) {
    port->wait_until_written();
  }
  const std::lock_guard lock(mutex_);
  snapshot_ = take_snapshot();
  return {};
}

void Emulator::Impl::round(base::Instant now) {
  const std::uint64_t before = ingress_.counters().frames + network_.events_run();
  read_ports();
  inject();
  network_.run_until(virtual_time(ingress_.known_until(now)));
  unpublished_ = unpublished_ || ingress_.counters().frames + network_.events_run() != before;
  ingress_.next_round();
  for (const auto& port : ports_) {
    port->flush();
  }
}

void Emulator::Impl::read_ports() {
  if (::poll(polled_.data(), polled_.size(), 0) <= 0) {
    return;
  }
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    if (polled_[i].revents != 0) {
      ports_[i]->read(ingress_);
    }
  }
}

// Different relays may read packets of the same host, so arrivals are sorted by time.
void Emulator::Impl::inject() {
  std::vector<Arrival>& arrivals = ingress_.arrivals();
  std::ranges::stable_sort(arrivals, {}, &Arrival::at);
  for (const Arrival& arrival : arrivals) {
    stacks_[arrival.from]->push(arrival.packet, std::max(virtual_time(arrival.at), network_.now()));
    network_.wake(arrival.from);
  }
}

void Emulator::Impl::wait(base::Instant round_began) {
  const base::MonotonicClock clock;
  const base::Instant next_round = round_began + kRest;
  if (clock.now() < next_round) {
    const timespec until = net::timespec_of(next_round.since_zero());
    ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
  }
  base::Instant wake = unpublished_ ? published_ + kPublishEvery : transport::kNever;
  if (const std::optional<base::Instant> next = network_.next_time()) {
    const base::Duration pause =
        network_.pool().payloads_in_use() == 0 ? kQuietStep : base::Duration();
    wake = std::min(wake, std::max(zero_ + next->since_zero(), round_began + pause));
  }
  const timespec timeout = net::timespec_of(wake - clock.now());
  ::ppoll(polled_.data(), polled_.size(), wake == transport::kNever ? nullptr : &timeout, nullptr);
}

void Emulator::Impl::stop() {
  stopping_ = true;
  const std::uint64_t one = 1;
  // A full counter has woken the loop already.
  [[maybe_unused]] const ssize_t written = ::write(stop_event_.get(), &one, sizeof(one));
}

// ------------------------------------------------------------------ reporting

void Emulator::Impl::publish(base::Instant now) {
  if (!unpublished_ || now - published_ < kPublishEvery) {
    return;
  }
  FabricSnapshot taken = take_snapshot();
  const std::lock_guard lock(mutex_);
  snapshot_ = std::move(taken);
  published_ = now;
  unpublished_ = false;
}

FabricSnapshot Emulator::Impl::take_snapshot() {
  FabricSnapshot taken;
  taken.taken = base::MonotonicClock().now();
  for (std::size_t i = 0; i < network_.port_count(); ++i) {
    taken.ports.push_back(snapshot_of(network_.port(i)));
  }
  taken.frames_in = ingress_.counters().frames;
  taken.unknown = ingress_.counters().unknown;
  taken.same_port = ingress_.counters().same_port;
  taken.foreign = ingress_.counters().foreign;
  sim::NetworkTotals totals = network_.totals();
  taken.lost_to_faults = totals.lost;
  taken.adders = std::move(totals.adders);
  taken.tenant_bytes = tenants_.delivered_bytes();
  taken.wanted_bytes = tenants_.wanted_bytes(network_.now());
  Lateness late;
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    const PortCounters counters = ports_[i]->counters();
    taken.frames_out += counters.out.sent;
    taken.missed_out += counters.out.refused;
    taken.missed_in += counters.missed;
    taken.oversized += counters.oversized;
    taken.dropped_in += stacks_[i]->dropped();
    late.add(counters.out.late);
  }
  taken.latest_us = static_cast<std::uint64_t>(late.latest().count() / 1000);
  taken.mean_late_us = base::microseconds_of(late.mean());
  taken.p99_late_us = base::microseconds_of(late.percentile(99));
  return taken;
}

// If nothing has happened since the snapshot was taken, it is still true now.
FabricSnapshot Emulator::Impl::snapshot() const {
  const std::lock_guard lock(mutex_);
  FabricSnapshot copy = snapshot_;
  copy.taken = unpublished_ ? copy.taken : base::MonotonicClock().now();
  return copy;
}

// ------------------------------------------------------------------ Emulator

Emulator::Emulator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Emulator::~Emulator() = default;

base::Result<std::unique_ptr<Emulator>> Emulator::make(const scenario::Scenario& scenario,
                                                       std::span<const PortAttachment> ports,
                                                       std::optional<unsigned> writers) {
  const base::Result<scenario::Topology> topology = scenario::build_topology(scenario);
  if (!topology.ok()) {
    return topology.status();
  }
  base::Status status = check_ports(ports, topology->hosts());
  if (status.ok()) {
    status = check_faults(scenario);
  }
  if (!status.ok()) {
    return status;
  }
  auto impl = std::make_unique<Impl>(*topology, scenario, ports);
  status = impl->open(ports);
  if (status.ok()) {
    status = impl->add_traffic(scenario, *topology);
  }
  if (!status.ok()) {
    return status;
  }
  impl->add_writers(
      writers.value_or(default_writers(ports.size(), std::thread::hardware_concurrency())));
  return std::unique_ptr<Emulator>(new Emulator(std::move(impl)));
}

base::Status Emulator::run() {
  return impl_->run();
}

void Emulator::stop() {
  impl_->stop();
}

FabricSnapshot Emulator::snapshot() const {
  return impl_->snapshot();
}

base::Result<std::unique_ptr<FabricThread>> FabricThread::make(
    const scenario::Scenario& scenario, std::span<const PortAttachment> ports) {
  base::Result<std::unique_ptr<Emulator>> emulator = Emulator::make(scenario, ports);
  if (!emulator.ok()) {
    return emulator.status();
  }
  net::UniqueFd ended(::eventfd(0, EFD_CLOEXEC));
  if (!ended.valid()) {
    return net::system_error("make an event descriptor", errno);
  }
  return std::unique_ptr<FabricThread>(
      new FabricThread(std::move(emulator).value(), std::move(ended)));
}

FabricThread::FabricThread(std::unique_ptr<Emulator> emulator, net::UniqueFd ended)
    : emulator_(std::move(emulator)), ended_(std::move(ended)), thread_([this] { work(); }) {}

FabricThread::~FabricThread() {
  (void)finish();
}

void FabricThread::work() {
  status_ = emulator_->run();
  const std::uint64_t one = 1;
  (void)!::write(ended_.get(), &one, sizeof(one));
}

base::Status FabricThread::finish() {
  if (thread_.joinable()) {
    emulator_->stop();
    thread_.join();
  }
  return status_;
}

}  // namespace spillway::fabric
