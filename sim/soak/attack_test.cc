// SPDX-License-Identifier: Apache-2.0
//
// The attacker, and the observer that checks what it achieves.
#include <gtest/gtest.h>

#include "sim/simulation.h"
#include "sim/soak/attack.h"
#include "sim/soak/observer.h"
#include "wire/data_packet.h"

namespace spillway::sim {
namespace {

// ------------------------------------------------------------------ the attacker

// Packets carry the low half of their numbers.
constexpr std::uint64_t kNumber = (std::uint64_t{1} << 32) + 40;
constexpr wire::PacketDirection kCourse{.epoch = 3, .from = 1, .to = 2};

wire::RunKey key_of(std::uint8_t run) {
  wire::RunKey key;
  key.bytes[0] = run;
  return key;
}

wire::PacketAuth auth_of(std::uint8_t run, const wire::PacketDirection& course = kCourse,
                         wire::Protection protection = wire::Protection::kTags) {
  return wire::PacketAuth::make(key_of(run), course, protection).value();
}

PacketBytes a_data_packet(const wire::PacketAuth& auth) {
  wire::DataHeader header;
  header.stamp.job = 7;
  header.stamp.epoch = kCourse.epoch;
  header.stamp.message.source = kCourse.from;
  header.stamp.destination = kCourse.to;
  header.stamp.number = kNumber;
  header.row_log2 = 11;
  header.rotations = 1;
  header.planes = 16;
  header.quanta = 20;
  header.head_bytes = 100;
  header.scale = 2.5F;
  PacketBytes planes(header.payload_bytes());
  for (std::size_t i = 0; i < planes.size(); ++i) {
    planes[i] = static_cast<std::uint8_t>(i * 7);
  }
  PacketBytes packet(header.packet_size());
  wire::write_data_packet(header, planes, auth, packet);
  return packet;
}

PacketBytes a_control_packet(const wire::PacketAuth& auth) {
  wire::ControlPacket control;
  control.type = wire::ControlType::kProbe;
  control.job = 7;
  control.epoch = kCourse.epoch;
  control.source = kCourse.from;
  control.destination = kCourse.to;
  control.sequence = kNumber;
  control.probe = {.packets = 9, .important = 1, .transmitted = 4};
  PacketBytes packet(control.size());
  wire::write_control_packet(control, auth, packet);
  return packet;
}

bool opens(const PacketBytes& packet, const wire::PacketAuth& auth) {
  wire::OpenedPacket data;
  wire::ControlPacket control;
  const bool is_data = spillway_type_of(packet[0]) == SPILLWAY_TYPE_PLANES;
  return (is_data ? wire::open_data_packet(packet, auth, data, kNumber)
                  : wire::open_control_packet(packet, auth, control, kNumber)) ==
         wire::PacketFault::kNone;
}

// Refused by its check, not because it is malformed.
void expect_well_formed_and_refused(const PacketBytes& packet, const wire::PacketAuth& auth) {
  wire::OpenedPacket data;
  wire::ControlPacket control;
  const bool is_data = spillway_type_of(packet[0]) == SPILLWAY_TYPE_PLANES;
  EXPECT_EQ(is_data ? wire::open_data_packet(packet, auth, data, kNumber)
                    : wire::open_control_packet(packet, auth, control, kNumber),
            wire::PacketFault::kHeadCheck);
}

TEST(SoakForgery, WhatIsSealedAnewWithItsOwnKeysIsTheSame) {
  const wire::PacketAuth auth = auth_of(1);
  for (const PacketBytes& packet : {a_data_packet(auth), a_control_packet(auth)}) {
    EXPECT_EQ(resealed(packet, auth, kNumber), packet);
  }
}

TEST(SoakForgery, WhatIsOfAnotherRunOrEpochIsGoodThereAndNowhereElse) {
  const wire::PacketAuth auth = auth_of(1);
  const wire::PacketAuth other_run = auth_of(2);
  const wire::PacketAuth other_epoch = auth_of(1, {kCourse.epoch + 65536, 1, 2});
  for (const PacketBytes& packet : {a_data_packet(auth), a_control_packet(auth)}) {
    for (const wire::PacketAuth* other : {&other_run, &other_epoch}) {
      const PacketBytes forged = resealed(packet, *other, kNumber);
      EXPECT_TRUE(opens(forged, *other));
      expect_well_formed_and_refused(forged, auth);
    }
  }
}

TEST(SoakForgery, EncryptedPacketsCanBeSealedAnewToo) {
  const wire::PacketAuth auth = auth_of(1, kCourse, wire::Protection::kEncryption);
  const wire::PacketAuth other = auth_of(2, kCourse, wire::Protection::kEncryption);
  const PacketBytes forged = resealed(a_data_packet(auth), other, kNumber);
  EXPECT_TRUE(opens(forged, other));
  expect_well_formed_and_refused(forged, auth);
}

TEST(SoakForgery, ChangedHeadersReachTheCheckAndFailIt) {
  const wire::PacketAuth auth = auth_of(1);
  const wire::PacketAuth back = auth_of(1, {kCourse.epoch, kCourse.to, kCourse.from});
  for (const PacketBytes& packet : {a_data_packet(auth), a_control_packet(auth)}) {
    PacketBytes pushed = packet;
    push_number(pushed, 1U << 20);
    EXPECT_NE(pushed, packet);
    expect_well_formed_and_refused(pushed, auth);

    PacketBytes reflected = packet;
    set_ends(reflected, {.source = kCourse.to, .destination = kCourse.from});
    EXPECT_EQ(ends_of(reflected).source, kCourse.to);
    expect_well_formed_and_refused(reflected, back);

    PacketBytes aged = packet;
    set_epoch(aged, kCourse.epoch - 1);
    expect_well_formed_and_refused(aged, auth);
  }
}

TEST(SoakForgery, ACutBehindTheTrustedEndIsStillGood) {
  const wire::PacketAuth auth = auth_of(1);
  PacketBytes packet = a_data_packet(auth);
  ASSERT_LT(trusted_end(packet), packet.size());
  packet.resize(trusted_end(packet));
  EXPECT_TRUE(opens(packet, auth));
  packet.pop_back();
  EXPECT_FALSE(opens(packet, auth));
  PacketBytes control = a_control_packet(auth);
  EXPECT_EQ(trusted_end(control), control.size());
}

// ------------------------------------------------------------------ the observer

// The watch detects violations: the tests hand packets to stacks one by one.

constexpr const char* kTwoHosts =
    "topology one-switch hosts=2 rate=10gbit delay=1us\n"
    "job protocol=spillway pattern=permutation hosts=2 bytes=20000 packet=1472 real-bytes=yes\n";

class SoakObserving : public ::testing::Test {
 protected:
  SoakObserving() : simulation_(scenario_, &observer_) {
    EXPECT_TRUE(simulation_.build().ok());
    observer_.follow(simulation_.network(), nullptr);
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
  const std::vector<std::string>& violations() { return observer_.record().violations; }

  const scenario::Scenario scenario_ = scenario::parse_scenario(kTwoHosts).value();
  SoakObserver observer_;
  Simulation simulation_;
};

TEST_F(SoakObserving, AForgeryThatIsRefusedIsCounted) {
  Packet packet;
  PacketBytes bytes = next_packet(packet);
  push_number(bytes, 1U << 20);
  deliver(packet, bytes, label_of({.attack = Attack::kPush, .is_forgery = true}));
  EXPECT_EQ(observer_.record().refused[static_cast<std::size_t>(Attack::kPush)], 1U);
  EXPECT_TRUE(violations().empty()) << violations().front();
}

TEST_F(SoakObserving, AForgeryThatIsTakenIsSeen) {
  Packet packet;
  const PacketBytes bytes = next_packet(packet);
  deliver(packet, bytes, label_of({.attack = Attack::kRedirect, .is_forgery = true}));
  ASSERT_EQ(violations().size(), 1U);
  EXPECT_NE(violations()[0].find("refused 0 times and changed something"), std::string::npos);
  EXPECT_EQ(observer_.record().forgeries_refused, 0U);
}

TEST_F(SoakObserving, WhatComesOnceMoreIsCounted) {
  Packet packet;
  const PacketBytes bytes = next_packet(packet);
  deliver(packet, bytes, packet.label);
  EXPECT_EQ(observer_.record().duplicates_counted, 0U);
  deliver(packet, bytes, label_of({.attack = Attack::kReplay}));
  EXPECT_EQ(observer_.record().duplicates_counted, 1U);
  EXPECT_TRUE(violations().empty()) << violations().front();
}

}  // namespace
}  // namespace spillway::sim
