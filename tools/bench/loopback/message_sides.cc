// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/loopback/message_sides.h"

#include <algorithm>
#include <array>
#include <optional>

#include "net/transport_driver.h"
#include "tools/bench/command_error.h"
#include "tools/bench/loopback/flood.h"
#include "tools/bench/loopback/process_pair.h"
#include "tools/bench/plane_payload.h"

namespace spillway::bench {
namespace {

// The key is all zeros: it costs as much as any other.
transport::Epoch epoch_of(const WireSpeedOptions& options) {
  return {.job = 1, .number = 1, .session = {.key = {}, .protection = options.protection}};
}

net::DriverConfig driver_config(const WireSpeedOptions& options, std::uint16_t rank) {
  net::DriverConfig config =
      value_or_throw(net::driver_config_from(base::Environment::of_process()));
  config.offloads = options.offloads;
  config.listen = loopback(0);
  config.socket_buffer_bytes = kSocketBufferBytes;
  config.endpoint.rank = rank;
  transport::ExchangeConfig& exchange = config.endpoint.exchange;
  exchange.paths = static_cast<std::uint8_t>(options.paths);
  const std::size_t run = std::min<std::size_t>(kMaxGsoBytes / options.datagram_bytes, 64);
  exchange.burst_packets = static_cast<std::uint8_t>(run);
  exchange.report_packets = static_cast<std::uint8_t>(std::min<std::size_t>(4 * run, 255));
  exchange.receive_rate = base::gigabits_per_second(200);
  exchange.unsolicited = base::bytes(1024 * 1024);
  exchange.probe_min = base::milliseconds(2);
  config.endpoint.congestion.window_initial = base::bytes(1024 * 1024);
  config.endpoint.congestion.window_max = base::bytes(2 * 1024 * 1024);
  config.endpoint.congestion.delay_target = base::milliseconds(1);
  return config;
}

wire::MessageId message_id(std::uint64_t number) {
  return {.operation = number, .source = 0, .phase = wire::Phase::kPointToPoint};
}

// Keeps messages_at_once messages in flight until the time is over and all have ended.
class MessageSender final : public net::DriverListener {
 public:
  MessageSender(const WireSpeedOptions& options, const packetize::PacketPlan& plan,
                PlaneSource& source)
      : options_(options), plan_(plan), source_(source) {}

  void attach(net::TransportDriver& driver) { driver_ = &driver; }

  void begin(transport::Endpoint& endpoint, base::Instant at) {
    end_ = at + base::nanoseconds(static_cast<std::int64_t>(options_.seconds * 1e9));
    for (unsigned i = 0; i < options_.messages_at_once; ++i) {
      send_next(endpoint, at);
    }
  }

  void on_event(const transport::Event& event, transport::Endpoint& endpoint,
                base::Instant at) override {
    if (!std::holds_alternative<transport::SendReport>(event)) {
      failed_ = true;
      driver_->stop();
      return;
    }
    --open_;
    if (at < end_) {
      send_next(endpoint, at);
    } else if (open_ == 0) {
      driver_->stop();
    }
  }

  bool failed() const { return failed_; }

 private:
  void send_next(transport::Endpoint& endpoint, base::Instant at) {
    const base::Status status =
        endpoint.send({.id = message_id(next_++),
                       .to = 1,
                       .packets = static_cast<std::uint32_t>(plan_.packet_count()),
                       .packet_bytes = static_cast<std::uint32_t>(plan_.max_packet_size()),
                       .loss = {.loss_bound_ppm = 0, .min_planes = 16},
                       .source = &source_},
                      at);
    if (!status.ok()) {
      throw CommandError(status);
    }
    ++open_;
  }

  const WireSpeedOptions& options_;
  const packetize::PacketPlan& plan_;
  PlaneSource& source_;
  net::TransportDriver* driver_ = nullptr;
  base::Instant end_;
  std::uint32_t next_ = 0;
  unsigned open_ = 0;
  bool failed_ = false;
};

class MessageReceiver final : public net::DriverListener {
 public:
  MessageReceiver(const WireSpeedOptions& options, const packetize::PacketPlan& plan,
                  PlaneSink& sink)
      : options_(options), plan_(plan), sink_(sink) {}

  void begin(transport::Endpoint& endpoint, base::Instant at) {
    // One more than the sender has in flight, so that the next message is always expected already.
    for (unsigned i = 0; i <= options_.messages_at_once; ++i) {
      expect_next(endpoint, at);
    }
  }

  void on_event(const transport::Event& event, transport::Endpoint& endpoint,
                base::Instant /*at*/) override {
    const auto* report = std::get_if<transport::ReceiveReport>(&event);
    if (report == nullptr || report->outcome != transport::Outcome::kEverything) {
      return;
    }
    last_ = now();
    bytes_ += static_cast<double>(plan_.layout().tensor_length()) * plan_.planes() / 8;
    if (messages_++ == 0) {
      first_ = last_;
      bytes_ = 0.0;  // counting starts at the end of the first message
    }
    expect_next(endpoint, last_);
  }

  SideResult result() const {
    SideResult result;
    result.bytes = bytes_;
    result.seconds = seconds_between(first_, last_);
    return result;
  }

 private:
  void expect_next(transport::Endpoint& endpoint, base::Instant at) {
    const base::Status status =
        endpoint.expect({.id = message_id(next_++),
                         .packets = static_cast<std::uint32_t>(plan_.packet_count()),
                         .packet_bytes = static_cast<std::uint32_t>(plan_.max_packet_size()),
                         .planes = static_cast<std::uint8_t>(plan_.planes()),
                         .loss = {.loss_bound_ppm = 0, .min_planes = 16},
                         .sink = &sink_},
                        at);
    if (!status.ok()) {
      throw CommandError(status);
    }
  }

  const WireSpeedOptions& options_;
  const packetize::PacketPlan& plan_;
  PlaneSink& sink_;
  std::uint32_t next_ = 0;
  std::uint64_t messages_ = 0;
  double bytes_ = 0.0;
  base::Instant first_;
  base::Instant last_;
};

}  // namespace

SideResult send_messages(int stream, const WireSpeedOptions& options) {
  const packetize::PacketPlan plan = plan_of_size(options.message_bytes, options.datagram_bytes, 0);
  PlaneSource source(plan);
  MessageSender sender(options, plan, source);
  const auto driver = value_or_throw(net::TransportDriver::open(driver_config(options, 0), sender));
  driver->begin_epoch(epoch_of(options));
  sender.attach(*driver);
  const net::SocketAddress target = loopback(hear_port(stream));
  tell_port(stream, driver->local().port());
  value_or_throw(driver->add_peer(1, target));
  driver->post(
      [&sender](transport::Endpoint& endpoint, base::Instant at) { sender.begin(endpoint, at); });
  driver->run();
  if (sender.failed()) {
    throw CommandError("the receiver stopped answering");
  }
  const transport::EndpointCounters counters = driver->counters().endpoint;
  SideResult result;
  result.extra = static_cast<double>(counters.data_resent) /
                 static_cast<double>(std::max<std::uint64_t>(counters.data_sent, 1));
  return result;
}

SideResult receive_messages(int stream, const WireSpeedOptions& options) {
  const packetize::PacketPlan plan = plan_of_size(options.message_bytes, options.datagram_bytes, 0);
  PlaneSink sink(plan);
  MessageReceiver receiver(options, plan, sink);
  const auto driver =
      value_or_throw(net::TransportDriver::open(driver_config(options, 1), receiver));
  driver->begin_epoch(epoch_of(options));
  tell_port(stream, driver->local().port());
  value_or_throw(driver->add_peer(0, loopback(hear_port(stream))));
  std::optional<Flood> flood;
  if (options.garbage > base::BitRate()) {
    flood.emplace(driver->local(), options.garbage);
  }
  driver->post([&receiver](transport::Endpoint& endpoint, base::Instant at) {
    receiver.begin(endpoint, at);
  });
  if (const base::Status status = driver->start(); !status.ok()) {
    throw CommandError(status);
  }
  while (!is_done(stream, 1000)) {
  }
  driver->stop_and_wait();
  SideResult result = receiver.result();
  for (const std::uint64_t count : driver->counters().faults) {
    result.extra += static_cast<double>(count);
  }
  if (!sink.holds_what_was_sent()) {
    throw CommandError("what arrived is not what was sent");
  }
  return result;
}

}  // namespace spillway::bench
