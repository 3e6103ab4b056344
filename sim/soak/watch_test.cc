// SPDX-License-Identifier: Apache-2.0
//
// The watch detects violations: the tests hand packets to stacks one by one.
#include "sim/soak/watch.h"

#include <gtest/gtest.h>

#include "sim/simulation.h"

namespace spillway::sim {
namespace {

constexpr const char* kTwoHosts =
    "topology one-switch hosts=2 rate=10gbit delay=1us\n"
    "job protocol=spillway pattern=permutation hosts=2 bytes=20000 packet=1472 real-bytes=yes\n";

class SoakWatching : public ::testing::Test {
 protected:
  SoakWatching() : simulation_(scenario_, &watch_) {
    EXPECT_TRUE(simulation_.build().ok());
    watch_.follow(simulation_.network(), nullptr);
    Flow flow;
    flow.id = 1;
    flow.from = 0;
    flow.to = 1;
    flow.bytes = 20'000;
    stack(1).expect_flow(flow, {});
    stack(0).start_flow(flow, {});
  }

  SpillwayStack& stack(HostId host) {
    return static_cast<SpillwayStack&>(simulation_.network().stack(host, 0));
  }
  // Returns host 0's next packet.
  PacketBytes next_packet(Packet& packet) {
    const PacketIndex index = simulation_.network().pool().allocate();
    EXPECT_TRUE(stack(0).poll_transmit({}, simulation_.network().pool()[index]));
    packet = simulation_.network().pool()[index];
    const base::ByteView payload = simulation_.network().pool().payload(packet);
    PacketBytes bytes(payload.begin(), payload.end());
    simulation_.network().pool().release(index);
    return bytes;
  }
  void deliver(const Packet& like, const PacketBytes& bytes, std::uint32_t label) {
    PacketPool& pool = simulation_.network().pool();
    const PacketIndex index = pool.allocate();
    Packet& packet = pool[index];
    packet.to = 1;
    packet.kind = like.kind;
    packet.label = label;
    std::ranges::copy(bytes, pool.attach_payload(packet, bytes.size()).begin());
    stack(1).on_packet(packet, {});
    pool.release(index);
  }
  const std::vector<std::string>& wrongs() { return watch_.record().wrongs; }

  const scenario::Scenario scenario_ = scenario::parse_scenario(kTwoHosts).value();
  SoakWatch watch_;
  Simulation simulation_;
};

TEST_F(SoakWatching, AForgeryThatIsRefusedIsCounted) {
  Packet packet;
  PacketBytes bytes = next_packet(packet);
  push_number(bytes, 1U << 20);
  deliver(packet, bytes, label_of({.attack = Attack::kPush, .is_forgery = true}));
  EXPECT_EQ(watch_.record().refused[static_cast<std::size_t>(Attack::kPush)], 1U);
  EXPECT_TRUE(wrongs().empty()) << wrongs().front();
}

TEST_F(SoakWatching, AForgeryThatIsTakenIsSeen) {
  Packet packet;
  const PacketBytes bytes = next_packet(packet);
  deliver(packet, bytes, label_of({.attack = Attack::kRedirect, .is_forgery = true}));
  ASSERT_EQ(wrongs().size(), 1U);
  EXPECT_NE(wrongs()[0].find("refused 0 times and changed something"), std::string::npos);
  EXPECT_EQ(watch_.record().forgeries_refused, 0U);
}

TEST_F(SoakWatching, WhatComesOnceMoreIsCounted) {
  Packet packet;
  const PacketBytes bytes = next_packet(packet);
  deliver(packet, bytes, packet.label);
  EXPECT_EQ(watch_.record().repeats_counted, 0U);
  deliver(packet, bytes, label_of({.attack = Attack::kReplay}));
  EXPECT_EQ(watch_.record().repeats_counted, 1U);
  EXPECT_TRUE(wrongs().empty()) << wrongs().front();
}

}  // namespace
}  // namespace spillway::sim
