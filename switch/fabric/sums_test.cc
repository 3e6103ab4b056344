// SPDX-License-Identifier: Apache-2.0
//
// Sum packets in real frames through a network of switches that add, as the fabric carries them:
// frames come in as a port reads them and leave as a port would write them.
#include <gtest/gtest.h>

#include <map>

#include "sim/network.h"
#include "sim/network_testing.h"
#include "sim/scenario/scenario.h"
#include "switch/dataplane/sum_frame.h"
#include "switch/fabric/frame.h"
#include "switch/fabric/frame_testing.h"
#include "switch/fabric/ingress.h"

namespace spillway::fabric {
namespace {

using sim::SumFields;

// A frame from a rank, on the host of the same number, to another rank.
Bytes frame_of(const SumFields& fields, const FrameOptions& like = {}) {
  FrameOptions options = like;
  options.payload = sim::sum_bytes(fields);
  options.tos = 41 << 2 | 2;
  options.source_port = static_cast<std::uint16_t>(7000 + fields.source);
  TestFrame frame = make_frame(options);
  frame.bytes[5] = static_cast<std::uint8_t>(fields.destination + 1);
  frame.bytes[11] = static_cast<std::uint8_t>(fields.source + 1);
  if (!options.ipv6) {
    const std::size_t ip = frame.ip;
    frame.bytes[ip + 15] = static_cast<std::uint8_t>(fields.source + 1);
    frame.bytes[ip + 19] = static_cast<std::uint8_t>(fields.destination + 1);
    frame.bytes[ip + 10] = 0;
    frame.bytes[ip + 11] = 0;
    const std::uint16_t sum =
        plain_sum(base::ByteView(frame.bytes).subspan(ip, frame.transport - ip));
    frame.bytes[ip + 10] = static_cast<std::uint8_t>(~sum >> 8);
    frame.bytes[ip + 11] = static_cast<std::uint8_t>(~sum);
  }
  frame.bytes[frame.transport + 2] = static_cast<std::uint8_t>((7000 + fields.destination) >> 8);
  frame.bytes[frame.transport + 3] = static_cast<std::uint8_t>(7000 + fields.destination);
  complete_checksum(frame.bytes);
  return frame.bytes;
}

// Hosts whose frames pass the ingress and the network, without sockets.
class FrameHost final : public sim::HostStack {
 public:
  explicit FrameHost(sim::PacketPool& pool) : pool_(pool) {}

  void expect_flow(const scenario::Flow& /*flow*/, base::Instant /*now*/) override {}
  void start_flow(const scenario::Flow& /*flow*/, base::Instant /*now*/) override {}
  void on_timeout(base::Instant /*now*/) override {}
  base::Instant next_timeout() const override { return transport::kNever; }

  void on_packet(sim::Packet& packet, base::Instant /*now*/) override {
    const base::MutableByteView bytes = pool_.payload(packet);
    EXPECT_EQ(packet.bytes, bytes.size());
    EXPECT_EQ(packet.bytes, packet.sent_bytes);
    Bytes frame(bytes.begin(), bytes.end());
    set_traffic_class(frame, packet.dscp, packet.ecn);
    came.push_back(frame);
  }

  bool poll_transmit(base::Instant /*now*/, sim::Packet& packet) override {
    if (waiting.empty()) {
      return false;
    }
    sim::Packet& kept = pool_[waiting.front()];
    packet = kept;
    packet.next = sim::kNone;
    kept.payload = sim::kNone;
    pool_.release(waiting.front());
    waiting.erase(waiting.begin());
    return true;
  }

  std::vector<sim::PacketIndex> waiting;
  std::vector<Bytes> came;

 private:
  sim::PacketPool& pool_;
};

struct FrameNetwork {
  FrameNetwork()
      : scenario(scenario::parse_scenario("topology one-switch hosts=5 rate=100gbit\n"
                                          "aggregate slots=1 policy=preemptive\n")
                     .value()),
        network(scenario::build_topology(scenario).value(), 1),
        ingress(network.pool(), network.hosts()) {
    for (scenario::HostId host = 0; host < network.hosts(); ++host) {
      auto stack = std::make_unique<FrameHost>(network.pool());
      hosts.push_back(stack.get());
      network.add_stack(host, std::move(stack));
    }
    introduce({});
  }

  // Every host sends once, so that later frames are not flooded.
  void introduce(const FrameOptions& like) {
    for (std::uint16_t host = 0; host < network.hosts(); ++host) {
      SumFields hello;
      hello.kind = SPILLWAY_SUM_WANT;
      hello.source = host;
      hello.destination = host == 0 ? 1 : 0;
      send(frame_of(hello, like), host);
    }
    for (FrameHost* host : hosts) {
      host->came.clear();
    }
  }

  void send(const Bytes& frame, scenario::HostId from) {
    ingress.take_frame(from, frame, {});
    for (const Arrival& arrival : ingress.arrivals()) {
      hosts[arrival.from]->waiting.push_back(arrival.packet);
    }
    ingress.next_round();
    network.wake(from);
    network.run_until(network.now() + base::microseconds(50));
  }
  void send(const SumFields& fields, const FrameOptions& like = {}) {
    send(frame_of(fields, like), fields.source);
  }

  scenario::Scenario scenario;
  sim::Network network;
  Ingress ingress;
  std::vector<FrameHost*> hosts;
};

// Expects a whole frame from one rank to another.
void expect_frame(const Bytes& frame, std::uint16_t from, std::uint16_t to, std::size_t ip = 14) {
  EXPECT_EQ(frame[5], to + 1);
  EXPECT_EQ(frame[11], from + 1);
  EXPECT_EQ(frame[ip + 15], from + 1);
  EXPECT_EQ(frame[ip + 19], to + 1);
  EXPECT_EQ(be_at(frame, ip + 20), 7000 + from);
  EXPECT_EQ(be_at(frame, ip + 22), 7000 + to);
  EXPECT_EQ(be_at(frame, ip + 2), frame.size() - ip);
  EXPECT_EQ(be_at(frame, ip + 24), frame.size() - ip - 20);
  EXPECT_EQ(be_at(frame, ip + 26), 0) << "a changed packet has no UDP checksum";
  EXPECT_EQ(plain_sum(base::ByteView(frame).subspan(ip, 20)), 0xFFFF);
}

base::ByteView payload_of(const Bytes& frame, std::size_t ip = 14) {
  return base::ByteView(frame).subspan(ip + 28);
}

TEST(FabricSums, FramesAreAddedUpOnTheirWayToTheOwner) {
  FrameNetwork world;
  SumFields part;
  part.need = 3;
  for (const std::uint16_t rank : {1, 2, 3}) {
    part.source = rank;
    world.send(part);
  }
  ASSERT_EQ(world.hosts[0]->came.size(), 1U);
  const Bytes& frame = world.hosts[0]->came[0];
  expect_frame(frame, 3, 0);
  EXPECT_TRUE(sim::is_right_sum(payload_of(frame), part));
  EXPECT_EQ(sim::image_of(payload_of(frame)).fields.ranks[0], 0b1110U);
}

TEST(FabricSums, WhatWasEvictedLeavesWithItsOwnAddresses) {
  FrameNetwork world;
  FrameOptions tagged;
  tagged.vlan = true;
  world.introduce(tagged);
  SumFields calm;
  calm.source = 1;
  world.send(calm, tagged);
  SumFields urgent;
  urgent.job = 2;
  urgent.source = 3;
  urgent.owner = 4;
  urgent.destination = 4;
  urgent.urgency = 200;
  world.send(urgent, tagged);
  ASSERT_EQ(world.hosts[0]->came.size(), 1U);
  EXPECT_TRUE(world.hosts[4]->came.empty());
  expect_frame(world.hosts[0]->came[0], 1, 0, 18);
  EXPECT_TRUE(sim::is_right_sum(payload_of(world.hosts[0]->came[0], 18), calm));
}

TEST(FabricSums, AFlushComesBackAsALongFrame) {
  FrameNetwork world;
  SumFields part;
  part.source = 1;
  world.send(part);
  SumFields flush;
  flush.kind = SPILLWAY_SUM_FLUSH;
  flush.destination = 2;
  flush.ranks = 0b1110;
  world.send(flush);
  EXPECT_TRUE(world.hosts[2]->came.empty());
  ASSERT_EQ(world.hosts[0]->came.size(), 1U);
  const Bytes& frame = world.hosts[0]->came[0];
  ASSERT_EQ(frame.size(), 42 + SPILLWAY_SUM_PACKET);
  expect_frame(frame, 2, 0);
  EXPECT_TRUE(sim::is_right_sum(payload_of(frame), part));
  EXPECT_EQ(frame[15], 41 << 2 | 2) << "the class of a part";
}

TEST(FabricSums, AResultReachesEveryRankUnderItsOwnAddress) {
  FrameNetwork world;
  SumFields part;
  for (const std::uint16_t rank : {1, 2, 3}) {
    part.source = rank;
    world.send(part);
  }
  SumFields result;
  result.kind = SPILLWAY_SUM_RESULT;
  result.ranks = 0b1111;
  result.recipients = 0b1110;
  result.destination = 1;
  result.marks = SPILLWAY_SUM_MULTIPLY;
  world.send(result);
  for (const std::uint16_t rank : {1, 2, 3}) {
    ASSERT_EQ(world.hosts[rank]->came.size(), 1U) << rank;
    expect_frame(world.hosts[rank]->came[0], 0, rank);
    EXPECT_TRUE(sim::is_right_sum(payload_of(world.hosts[rank]->came[0]), result));
  }
  EXPECT_EQ(world.network.pool().in_use(), 0U);
}

TEST(FabricSums, WhatCannotBeChangedPassesAsItIs) {
  FrameNetwork world;
  SumFields part;
  part.need = 2;
  part.source = 1;
  FrameOptions ipv6;
  ipv6.ipv6 = true;
  world.send(part, ipv6);
  part.source = 2;
  world.send(part, ipv6);
  ASSERT_EQ(world.hosts[0]->came.size(), 2U);
  EXPECT_EQ(world.hosts[0]->came[1], frame_of(part, ipv6));
  const sim::AdderTotals adder = world.network.adders().at(0);
  EXPECT_EQ(adder.counters.outcomes[SPILLWAY_SUM_PAST_IPV6], 2U);
}

TEST(FabricSums, FramesAreKnownForWhatTheyAre) {
  SumFields fields;
  EXPECT_EQ(inspect_frame(frame_of(fields)).kind, FrameKind::kSpillwaySum);
  fields.kind = SPILLWAY_SUM_FLUSH;
  EXPECT_EQ(inspect_frame(frame_of(fields)).kind, FrameKind::kSpillwaySumControl);
  fields.kind = 77;
  EXPECT_EQ(inspect_frame(frame_of(fields)).kind, FrameKind::kOther);
}

}  // namespace
}  // namespace spillway::fabric
