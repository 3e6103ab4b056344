// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/incast/carriers.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "packetize/packet_plan.h"
#include "tools/bench/command_error.h"
#include "tools/bench/loopback/process_pair.h"

namespace spillway::bench {

// ------------------------------------------------------------------ TCP

namespace {

constexpr std::size_t kBlockBytes = 64 * 1024;
constexpr int kConnectAttempts = 2000;  // a few milliseconds apart

net::UniqueFd listen_at(const net::SocketAddress& address, std::size_t backlog) {
  net::UniqueFd listener(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(listener.get(), address.data(), address.size()) != 0 ||
      ::listen(listener.get(), static_cast<int>(backlog)) != 0) {
    throw CommandError(fmt::format("cannot listen at {}", address.to_string()));
  }
  return listener;
}

bool send_bytes(int stream, std::uint64_t bytes) {
  const std::vector<char> block(kBlockBytes);
  while (bytes > 0) {
    const ssize_t sent =
        ::send(stream, block.data(), std::min<std::uint64_t>(bytes, block.size()), MSG_NOSIGNAL);
    if (sent <= 0) {
      return false;
    }
    bytes -= static_cast<std::uint64_t>(sent);
  }
  return true;
}

bool receive_bytes(int stream, std::uint64_t bytes) {
  std::vector<char> block(kBlockBytes);
  while (bytes > 0) {
    const ssize_t got =
        ::recv(stream, block.data(), std::min<std::uint64_t>(bytes, block.size()), 0);
    if (got <= 0) {
      return false;
    }
    bytes -= static_cast<std::uint64_t>(got);
  }
  return true;
}

}  // namespace

TcpCarrier::TcpCarrier(const CarrierConfig& config, const TcpCarrierOptions& options)
    : config_(config) {
  for (std::uint32_t number = 0; number < config.flows.size(); ++number) {
    const scenario::Flow& flow = config.flows[number];
    if (flow.from == config.rank) {
      outgoing_.push_back({flow, number, {}});
    } else if (flow.to == config.rank) {
      incoming_.push_back({flow, number, {}});
    }
  }
  const net::UniqueFd listener =
      listen_at(options.peers[config.rank], std::max<std::size_t>(incoming_.size(), 1));
  for (Leg& leg : outgoing_) {
    connect_to(options.peers[leg.flow.to], options.congestion_control, leg);
  }
  accept_all(listener);
}

void TcpCarrier::connect_to(const net::SocketAddress& address,
                            const std::string& congestion_control, Leg& leg) {
  for (int attempt = 0; attempt < kConnectAttempts; ++attempt) {
    net::UniqueFd stream(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!congestion_control.empty() &&
        ::setsockopt(stream.get(), IPPROTO_TCP, TCP_CONGESTION, congestion_control.data(),
                     static_cast<socklen_t>(congestion_control.size())) != 0) {
      throw CommandError(
          fmt::format("this kernel has no TCP congestion control '{}': see `sysctl "
                      "net.ipv4.tcp_available_congestion_control`",
                      congestion_control));
    }
    if (::connect(stream.get(), address.data(), address.size()) == 0 &&
        ::send(stream.get(), &leg.number, sizeof(leg.number), MSG_NOSIGNAL) == sizeof(leg.number)) {
      leg.stream = std::move(stream);
      return;
    }
    ::usleep(5000);
  }
  throw CommandError(fmt::format("nobody listens at {}", address.to_string()));
}

// A connection's first bytes name its flow.
void TcpCarrier::accept_all(const net::UniqueFd& listener) {
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    net::UniqueFd stream(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::uint32_t number = 0;
    if (::recv(stream.get(), &number, sizeof(number), MSG_WAITALL) != sizeof(number)) {
      throw CommandError("another rank is gone");
    }
    const auto leg = std::find_if(incoming_.begin(), incoming_.end(),
                                  [number](const Leg& other) { return other.number == number; });
    leg->stream = std::move(stream);
  }
}

void TcpCarrier::prepare(std::uint32_t /*round*/) {}

std::vector<FlowOutcome> TcpCarrier::carry(std::uint32_t /*round*/, base::Instant start) {
  std::vector<FlowOutcome> outcomes(incoming_.size());
  std::atomic<bool> failed = false;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    threads.emplace_back([this, i, start, &outcomes, &failed] {
      failed = !receive_bytes(incoming_[i].stream.get(), incoming_[i].flow.bytes) || failed;
      outcomes[i].flow = incoming_[i].number;
      outcomes[i].nanoseconds = (base::MonotonicClock().now() - start).count();
    });
  }
  sleep_until(start);
  for (const Leg& leg : outgoing_) {
    threads.emplace_back(
        [&leg, &failed] { failed = !send_bytes(leg.stream.get(), leg.flow.bytes) || failed; });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (failed) {
    throw CommandError("another rank is gone");
  }
  return outcomes;
}

// ------------------------------------------------------------------ Spillway

namespace {

// The key is public: it is there only for its cost.
const transport::Epoch kIncastEpoch{.job = 1, .number = 1, .session = {}};
constexpr auto kPatience = std::chrono::seconds(60);

net::DriverConfig driver_config(std::uint16_t rank, const SpillwayCarrierOptions& options) {
  net::DriverConfig config;
  config.listen = options.listen;
  config.endpoint.rank = rank;
  config.endpoint.limits = options.spillway.limits;
  config.endpoint.exchange = options.spillway.exchange;
  config.endpoint.exchange.receive_rate = options.spillway.receive_rate.value_or(options.link_rate);
  config.send_rate = options.link_rate;
  return config;
}

}  // namespace

SpillwayCarrier::SpillwayCarrier(const CarrierConfig& config, const SpillwayCarrierOptions& options)
    : config_(config), options_(options) {
  driver_ = value_or_throw(net::TransportDriver::open(driver_config(config.rank, options), *this));
  driver_->begin_epoch(kIncastEpoch);
  for (const std::string& warning : driver_->warnings()) {
    fmt::print(stderr, "spillway: {}\n", warning);
  }
  unsigned datagram_bytes = options.spillway.packet_bytes;
  for (std::size_t rank = 0; rank < options.peers.size(); ++rank) {
    if (rank != config.rank) {
      datagram_bytes = std::min(
          datagram_bytes,
          value_or_throw(driver_->add_peer(static_cast<std::uint16_t>(rank), options.peers[rank])));
    }
  }
  for (std::uint32_t number = 0; number < config.flows.size(); ++number) {
    const scenario::Flow& flow = config.flows[number];
    if (flow.from == config.rank) {
      outgoing_.push_back(make_leg(flow, number, datagram_bytes));
      outgoing_.back().source = std::make_unique<PlaneSource>(*outgoing_.back().plan);
    } else if (flow.to == config.rank) {
      incoming_.push_back(make_leg(flow, number, datagram_bytes));
      incoming_.back().sink = std::make_unique<PlaneSink>(*incoming_.back().plan);
    }
  }
  if (const base::Status status = driver_->start(); !status.ok()) {
    throw CommandError(status);
  }
}

SpillwayCarrier::~SpillwayCarrier() = default;

SpillwayCarrier::Leg SpillwayCarrier::make_leg(const scenario::Flow& flow, std::uint32_t number,
                                               unsigned datagram_bytes) {
  Leg leg;
  leg.flow = flow;
  leg.number = number;
  leg.plan = std::make_unique<packetize::PacketPlan>(
      plan_of_size(flow.bytes, datagram_bytes, options_.trim_bytes));
  return leg;
}

// A flow's message in a round: the signature tells flows apart, the operation rounds.
wire::MessageId SpillwayCarrier::id_of(const Leg& leg, std::uint32_t round) const {
  return {.operation = round,
          .signature = leg.number,
          .source = static_cast<std::uint16_t>(leg.flow.from),
          .phase = wire::Phase::kPointToPoint};
}

transport::ReceiveOptions SpillwayCarrier::receive_options(const Leg& leg,
                                                           std::uint32_t round) const {
  return {.id = id_of(leg, round),
          .packets = static_cast<std::uint32_t>(leg.plan->packet_count()),
          .packet_bytes = static_cast<std::uint32_t>(leg.plan->max_packet_size()),
          .planes = static_cast<std::uint8_t>(leg.plan->planes()),
          .priority = leg.flow.priority,
          .loss = leg.flow.loss,
          .deadline = options_.spillway.deadline,
          .sink = leg.sink.get()};
}

transport::SendOptions SpillwayCarrier::send_options(const Leg& leg, std::uint32_t round) const {
  return {.id = id_of(leg, round),
          .to = static_cast<std::uint16_t>(leg.flow.to),
          .packets = static_cast<std::uint32_t>(leg.plan->packet_count()),
          .packet_bytes = static_cast<std::uint32_t>(leg.plan->max_packet_size()),
          .priority = leg.flow.priority,
          .importance = leg.flow.importance,
          .loss = leg.flow.loss,
          .source = leg.source.get()};
}

void SpillwayCarrier::note(base::Status status) {
  if (!status.ok()) {
    const std::lock_guard lock(mutex_);
    problem_ = status.message();
    changed_.notify_all();
  }
}

void SpillwayCarrier::prepare(std::uint32_t round) {
  {
    const std::lock_guard lock(mutex_);
    open_ = incoming_.size() + outgoing_.size();
    outcomes_.clear();
  }
  driver_->post([this, round](transport::Endpoint& endpoint, base::Instant now) {
    for (const Leg& leg : incoming_) {
      note(endpoint.expect(receive_options(leg, round), now));
    }
  });
}

std::vector<FlowOutcome> SpillwayCarrier::carry(std::uint32_t round, base::Instant start) {
  {
    const std::lock_guard lock(mutex_);
    start_ = start;
  }
  sleep_until(start);
  driver_->post([this, round](transport::Endpoint& endpoint, base::Instant now) {
    for (const Leg& leg : outgoing_) {
      note(endpoint.send(send_options(leg, round), now));
    }
  });
  std::unique_lock lock(mutex_);
  const bool ended =
      changed_.wait_for(lock, kPatience, [this] { return open_ == 0 || !problem_.empty(); });
  if (!problem_.empty()) {
    throw CommandError(problem_);
  }
  if (!ended) {
    throw CommandError(fmt::format("{} messages of rank {} did not end", open_, config_.rank));
  }
  return outcomes_;
}

void SpillwayCarrier::on_event(const transport::Event& event, transport::Endpoint& /*endpoint*/,
                               base::Instant now) {
  const std::lock_guard lock(mutex_);
  if (const auto* dead = std::get_if<transport::PeerDead>(&event)) {
    problem_ = fmt::format("rank {} stopped answering", dead->rank);
  } else if (const auto* report = std::get_if<transport::ReceiveReport>(&event)) {
    const Leg& leg = *std::find_if(incoming_.begin(), incoming_.end(), [report](const Leg& other) {
      return other.number == report->id.signature;
    });
    outcomes_.push_back({.flow = leg.number,
                         .packets = report->packets,
                         .delivered = report->delivered,
                         .trimmed = report->trimmed(),
                         .allowed_missing = leg.flow.loss.allowed_missing(report->packets),
                         .nanoseconds = (now - start_).count()});
    --open_;
  } else {
    --open_;
  }
  changed_.notify_all();
}

}  // namespace spillway::bench
