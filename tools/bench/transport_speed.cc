// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/transport_speed.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "transport/datagram_port.h"

namespace spillway::bench {
namespace {

constexpr std::uint32_t kPackets = 16384;    // per message
constexpr std::uint32_t kCoordinates = 704;  // per packet: fills an Ethernet frame at 16 planes
constexpr std::uint8_t kSentPlanes = 16;
constexpr base::Instant kStart{base::milliseconds(1)};
constexpr base::Duration kPerPacket = base::nanoseconds(120);  // virtual: 1,500 bytes at 100 Gb/s

constexpr std::array<std::pair<const char*, wire::Protection>, 2> kProtections = {
    {{"datagrams, tags", wire::Protection::kTags},
     {"datagrams, encrypted", wire::Protection::kEncryption}}};

transport::EndpointConfig config_of(std::uint16_t rank) {
  transport::EndpointConfig config;
  config.rank = rank;
  config.exchange.receive_rate = base::gigabits_per_second(100);
  return config;
}

wire::DataHeader header_of(const wire::DataStamp& stamp) {
  wire::DataHeader header;
  header.stamp = stamp;
  header.row_log2 = 15;
  header.rotations = 1;
  header.planes = kSentPlanes;
  header.quanta = kCoordinates / SPILLWAY_QUANTUM;
  header.head_bytes = 120;
  header.scale = 1.0F;
  return header;
}

// Writes every packet with the same planes; their content does not matter here.
class ConstantSource final : public transport::PayloadSource {
 public:
  ConstantSource() : planes_(kCoordinates / 8 * kSentPlanes, 0x5A) {}
  std::size_t write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                    base::MutableByteView out) override {
    return wire::write_data_packet(header_of(stamp), planes_, auth, out);
  }

 private:
  std::vector<std::uint8_t> planes_;
};

class CopyingSink final : public transport::PayloadSink {
 public:
  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override {
    const wire::TrustedPlanes trusted = wire::copy_trusted_planes(bytes, packet, planes_);
    return static_cast<unsigned>(trusted.bytes / (packet.header.count() / 8));
  }

 private:
  std::array<std::uint8_t, SPILLWAY_MAX_PACKET> planes_;
};

struct Exchange {
  transport::Endpoint& sender;
  transport::Endpoint& receiver;
  transport::PayloadSource* source = nullptr;
  transport::PayloadSink* sink = nullptr;
  std::uint32_t packet_bytes = 1460;
  // Carries one packet in its direction; false if there was none.
  std::function<bool(base::Instant now)> forward;
  std::function<bool(base::Instant now)> back;
};

bool has_ended(transport::Endpoint& receiver, transport::Endpoint& sender) {
  transport::Event event;
  while (sender.poll_event(event)) {
  }
  return receiver.poll_event(event);
}

void fire_timers(transport::Endpoint& endpoint, base::Instant now) {
  if (endpoint.next_timeout() <= now) {
    endpoint.on_timeout(now);
  }
}

// Sends messages one after another, in virtual time.
void run_messages(Exchange& exchange, std::uint32_t messages) {
  base::Instant now = kStart;
  for (std::uint32_t step = 1; step <= messages; ++step) {
    transport::SendOptions send;
    send.id = {.operation = step, .source = 0};
    send.to = 1;
    send.packets = kPackets;
    send.packet_bytes = exchange.packet_bytes;
    send.source = exchange.source;
    transport::ReceiveOptions receive;
    receive.id = send.id;
    receive.packets = kPackets;
    receive.packet_bytes = send.packet_bytes;
    receive.planes = kSentPlanes;
    receive.sink = exchange.sink;
    SPILLWAY_CHECK(exchange.receiver.expect(receive, now).ok() &&
                   exchange.sender.send(send, now).ok());
    while (!has_ended(exchange.receiver, exchange.sender)) {
      exchange.forward(now);
      while (exchange.back(now)) {
      }
      fire_timers(exchange.sender, now);
      fire_timers(exchange.receiver, now);
      now = now + kPerPacket;
    }
  }
}

bool carry_record(transport::Endpoint& from, transport::Endpoint& to,
                  transport::Transmission& transmission, base::Instant now) {
  if (!from.poll_transmit(now, transmission)) {
    return false;
  }
  if (transmission.route.is_control) {
    to.on_control(transmission.control, now);
    return true;
  }
  transport::DataArrival arrival;
  arrival.stamp = transmission.data;
  arrival.sent_bytes = transmission.data_bytes;
  arrival.planes = kSentPlanes;
  to.on_data(arrival, now);
  return true;
}

bool carry_datagram(transport::DatagramPort& from, transport::DatagramPort& to,
                    base::MutableByteView buffer, base::Instant now) {
  transport::Route route;
  const std::size_t size = from.poll_datagram(now, buffer, route);
  if (size > 0) {
    to.on_datagram(buffer.first(size), false, now);
  }
  return size > 0;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The rate at which `sender` sent data packets while `work` ran.
TransportSpeed speed_of(std::string what, const transport::Endpoint& sender,
                        const transport::Endpoint& receiver, const std::function<void()>& work) {
  const double seconds = seconds_of(work);
  const auto packets = static_cast<double>(sender.counters().data_sent);
  const auto control =
      static_cast<double>(sender.counters().control_sent + receiver.counters().control_sent);
  return {.what = std::move(what),
          .packets_per_second = packets / seconds,
          .control_share = control / packets};
}

TransportSpeed time_records(std::uint32_t messages) {
  transport::Endpoint sender(config_of(0));
  transport::Endpoint receiver(config_of(1));
  SPILLWAY_CHECK(sender.add_peer(1, kStart).ok() && receiver.add_peer(0, kStart).ok());
  transport::Transmission transmission;
  Exchange exchange{.sender = sender, .receiver = receiver, .forward = {}, .back = {}};
  exchange.forward = [&](base::Instant now) {
    return carry_record(sender, receiver, transmission, now);
  };
  exchange.back = [&](base::Instant now) {
    return carry_record(receiver, sender, transmission, now);
  };
  return speed_of("state machines", sender, receiver, [&] { run_messages(exchange, messages); });
}

TransportSpeed time_datagrams(std::string what, wire::Protection protection,
                              std::uint32_t messages) {
  const transport::SessionConfig session{.key = {}, .protection = protection};
  transport::DatagramPort sender(config_of(0), session);
  transport::DatagramPort receiver(config_of(1), session);
  SPILLWAY_CHECK(sender.add_peer(1, kStart).ok() && receiver.add_peer(0, kStart).ok());
  ConstantSource source;
  CopyingSink sink;
  std::vector<std::uint8_t> buffer(SPILLWAY_MAX_PACKET);
  Exchange exchange{.sender = sender.endpoint(),
                    .receiver = receiver.endpoint(),
                    .source = &source,
                    .sink = &sink,
                    .packet_bytes = static_cast<std::uint32_t>(header_of({}).packet_size()),
                    .forward = {},
                    .back = {}};
  exchange.forward = [&](base::Instant now) {
    return carry_datagram(sender, receiver, buffer, now);
  };
  exchange.back = [&](base::Instant now) { return carry_datagram(receiver, sender, buffer, now); };
  return speed_of(std::move(what), sender.endpoint(), receiver.endpoint(),
                  [&] { run_messages(exchange, messages); });
}

TransportSpeed best_of(int repetitions, const std::function<TransportSpeed()>& measure) {
  TransportSpeed best = measure();
  for (int i = 1; i < repetitions; ++i) {
    const TransportSpeed again = measure();
    best = again.packets_per_second > best.packets_per_second ? again : best;
  }
  return best;
}

double memcpy_speed(int repetitions) {
  constexpr std::size_t kPiece = 1460;
  std::vector<std::uint8_t> from(kPiece * kPackets, 1);
  std::vector<std::uint8_t> to(from.size(), 2);
  double best = 0.0;
  for (int i = 0; i < repetitions; ++i) {
    const double seconds = seconds_of([&] {
      for (std::size_t at = 0; at < from.size(); at += kPiece) {
        std::memcpy(to.data() + at, from.data() + at, kPiece);
      }
    });
    best = std::max(best, static_cast<double>(from.size()) / seconds * 1e-9);
  }
  return best;
}

}  // namespace

std::size_t transport_speed_steps() {
  return 1 + kProtections.size();
}

TransportSpeedResults measure_transport_speed(const TransportSpeedOptions& options,
                                              Progress& progress) {
  TransportSpeedResults results;
  results.memcpy_gigabytes_per_second = memcpy_speed(options.repetitions);
  progress.step("state machines");
  results.rows.push_back(
      best_of(options.repetitions, [&] { return time_records(options.messages); }));
  // Datagrams are an order of magnitude slower, so use fewer.
  const std::uint32_t messages = std::max(1U, options.messages / 8);
  for (const auto& [what, protection] : kProtections) {
    progress.step(what);
    results.rows.push_back(best_of(options.repetitions, [&, what = what, protection = protection] {
      return time_datagrams(what, protection, messages);
    }));
  }
  return results;
}

}  // namespace spillway::bench
