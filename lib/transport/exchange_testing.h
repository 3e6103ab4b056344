// SPDX-License-Identifier: Apache-2.0
//
// A few endpoints joined by a delay line, for tests: every packet takes the same time unless the
// test's filter drops, delays, duplicates, trims or marks it. Time is virtual, packets are records.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "transport/endpoint.h"
#include "transport/message.h"

namespace spillway::transport {

struct TestPacket {
  std::uint16_t from = 0;
  Transmission sent;
  std::uint8_t planes = 16;  // of a data packet, on arrival
  bool marked = false;
};

class Exchange {
 public:
  // Returns how many copies arrive; may change the packet and, by the last argument, delay it.
  using Filter = std::function<int(TestPacket&, base::Duration& extra_delay)>;

  static constexpr std::uint8_t kPlanes = 16;
  base::Duration delay = base::microseconds(10);
  base::Duration per_packet = base::nanoseconds(1000);  // a sender's link
  Filter filter = [](TestPacket&, base::Duration&) { return 1; };

  explicit Exchange(std::uint16_t ranks, const EndpointConfig& config = {}) {
    for (std::uint16_t rank = 0; rank < ranks; ++rank) {
      EndpointConfig own = config;
      own.rank = rank;
      nodes_.push_back({Endpoint(own), {}, {}, {}, {}, {}});
    }
    for (std::uint16_t a = 0; a < ranks; ++a) {
      for (std::uint16_t b = 0; b < ranks; ++b) {
        if (a != b) {
          static_cast<void>(nodes_[a].endpoint.add_peer(b, now_));
        }
      }
    }
  }

  Endpoint& operator[](std::uint16_t rank) { return nodes_[rank].endpoint; }
  base::Instant now() const { return now_; }
  const std::vector<ReceiveReport>& received(std::uint16_t rank) const {
    return nodes_[rank].received;
  }
  const std::vector<SendReport>& sent(std::uint16_t rank) const { return nodes_[rank].sent; }
  const std::vector<std::uint16_t>& dead_peers(std::uint16_t rank) const {
    return nodes_[rank].dead;
  }

  const std::vector<MessageStalled>& stalled(std::uint16_t rank) const {
    return nodes_[rank].stalled;
  }

  // A message of `packets` packets that both ends know of.
  SendOptions send_options(std::uint32_t packets, std::uint16_t from, std::uint16_t to,
                           std::uint64_t operation = 1) const {
    SendOptions options;
    options.id = {.operation = operation, .source = from};
    options.to = to;
    options.packets = packets;
    options.packet_bytes = 1000;
    return options;
  }
  static ReceiveOptions receive_options(const SendOptions& send) {
    ReceiveOptions options;
    options.id = send.id;
    options.packets = send.packets;
    options.packet_bytes = send.packet_bytes;
    options.planes = kPlanes;
    options.priority = send.priority;
    options.loss = send.loss;
    options.carrier = send.carrier;
    return options;
  }
  base::Status start(const SendOptions& options) {
    if (base::Status status = nodes_[options.to].endpoint.expect(receive_options(options), now_);
        !status.ok()) {
      return status;
    }
    return nodes_[options.id.source].endpoint.send(options, now_);
  }

  // Runs until nothing is left to do or `limit` has passed; a dead rank neither sends nor hears.
  void run(base::Duration limit = base::seconds(5)) {
    const base::Instant end = now_ + limit;
    while (now_ < end && step(end)) {
    }
  }
  void kill(std::uint16_t rank) { nodes_[rank].killed = true; }
  // Hands a record of an earlier packet to a rank once more.
  void replay(std::uint16_t to, const TestPacket& packet) { arrive(to, packet); }

 private:
  struct Node {
    Endpoint endpoint;
    base::Instant free_at;
    std::vector<ReceiveReport> received;
    std::vector<SendReport> sent;
    std::vector<std::uint16_t> dead;
    std::vector<MessageStalled> stalled;
    bool killed = false;
  };

  bool step(base::Instant end) {
    for (std::uint16_t rank = 0; rank < nodes_.size(); ++rank) {
      transmit(rank);
      take_events(rank);
    }
    base::Instant next = kNever;
    for (const Node& node : nodes_) {
      if (!node.killed) {
        next = std::min(next, node.endpoint.next_timeout());
        next = node.free_at > now_ ? std::min(next, node.free_at) : next;
      }
    }
    next = in_flight_.empty() ? next : std::min(next, in_flight_.begin()->first);
    if (next == kNever) {
      return false;
    }
    now_ = std::max(now_, std::min(next, end));
    while (!in_flight_.empty() && in_flight_.begin()->first <= now_) {
      const auto [to, packet] = std::move(in_flight_.begin()->second);
      in_flight_.erase(in_flight_.begin());
      arrive(to, *packet);
    }
    for (Node& node : nodes_) {
      if (!node.killed && node.endpoint.next_timeout() <= now_) {
        node.endpoint.on_timeout(now_);
      }
    }
    return true;
  }

  void transmit(std::uint16_t rank) {
    Node& node = nodes_[rank];
    auto packet = std::make_shared<TestPacket>();
    while (!node.killed && node.free_at <= now_ &&
           node.endpoint.poll_transmit(now_, packet->sent)) {
      node.free_at = now_ + per_packet;
      packet->from = rank;
      packet->planes = kPlanes;
      base::Duration extra;
      const int copies = filter(*packet, extra);
      for (int copy = 0; copy < copies; ++copy) {
        in_flight_.emplace(now_ + delay + extra, std::pair(packet->sent.route.peer, packet));
      }
      packet = std::make_shared<TestPacket>();
    }
  }

  void arrive(std::uint16_t to, const TestPacket& packet) {
    if (nodes_[to].killed) {
      return;
    }
    if (packet.sent.route.is_control) {
      nodes_[to].endpoint.on_control(packet.sent.control, now_);
      return;
    }
    DataArrival arrival;
    arrival.stamp = packet.sent.data;
    arrival.sent_bytes = packet.sent.data_bytes;
    arrival.planes = packet.planes;
    arrival.trimmed = packet.planes < kPlanes;
    arrival.marked = packet.marked;
    nodes_[to].endpoint.on_data(arrival, now_);
  }

  void take_events(std::uint16_t rank) {
    Node& node = nodes_[rank];
    Event event;
    while (!node.killed && node.endpoint.poll_event(event)) {
      if (auto* received = std::get_if<ReceiveReport>(&event)) {
        node.received.push_back(*received);
      } else if (auto* sent = std::get_if<SendReport>(&event)) {
        node.sent.push_back(*sent);
      } else if (auto* stalled = std::get_if<MessageStalled>(&event)) {
        node.stalled.push_back(*stalled);
      } else if (auto* dead = std::get_if<PeerDead>(&event)) {
        node.dead.push_back(dead->rank);
      }
    }
  }

  std::vector<Node> nodes_;
  base::Instant now_ = base::Instant(base::milliseconds(1));
  std::multimap<base::Instant, std::pair<std::uint16_t, std::shared_ptr<TestPacket>>> in_flight_;
};

// Data packets for tests: 640 coordinates with 8 planes, so that a plane has 80 bytes and all of
// them 640, whatever is in them.

inline constexpr std::uint8_t kTestPlanes = 8;
inline constexpr std::size_t kTestPlanesBytes = 640;

inline wire::DataHeader test_header(const wire::DataStamp& stamp, std::uint16_t head_bytes = 160) {
  wire::DataHeader header{.stamp = stamp};
  header.row_log2 = SPILLWAY_MAX_ROW_LOG2;
  header.rotations = 1;
  header.planes = kTestPlanes;
  header.quanta = 20;
  header.head_bytes = head_bytes;
  header.scale = 1.0F;
  return header;
}

// The trusted planes of a packet. Below: how many whole planes those are.
inline std::vector<std::uint8_t> test_planes(const wire::OpenedPacket& packet,
                                             base::ByteView bytes) {
  std::vector<std::uint8_t> planes(kTestPlanesBytes);
  planes.resize(wire::copy_trusted_planes(bytes, packet, planes).bytes);
  return planes;
}
inline unsigned whole_test_planes(const std::vector<std::uint8_t>& planes) {
  return static_cast<unsigned>(planes.size() / (kTestPlanesBytes / kTestPlanes));
}

}  // namespace spillway::transport
