// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/forgery.h"

#include <gtest/gtest.h>

#include "wire/data_packet.h"

namespace spillway::sim {
namespace {

// Packets carry the low half of their numbers.
constexpr std::uint64_t kNumber = (std::uint64_t{1} << 32) + 40;
constexpr wire::PacketCourse kCourse{.epoch = 3, .from = 1, .to = 2};

wire::RunKey key_of(std::uint8_t run) {
  wire::RunKey key;
  key.bytes[0] = run;
  return key;
}

wire::PacketAuth auth_of(std::uint8_t run, const wire::PacketCourse& course = kCourse,
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
  PacketBytes planes(header.plane_bytes());
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
  const bool is_data = spillway_type_of(packet[0]) == SPILLWAY_TYPE_DATA;
  return (is_data ? wire::open_data_packet(packet, auth, data, kNumber)
                  : wire::open_control_packet(packet, auth, control, kNumber)) ==
         wire::PacketFault::kNone;
}

// Refused by its check, not because it is malformed.
void expect_well_formed_and_refused(const PacketBytes& packet, const wire::PacketAuth& auth) {
  wire::OpenedPacket data;
  wire::ControlPacket control;
  const bool is_data = spillway_type_of(packet[0]) == SPILLWAY_TYPE_DATA;
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

}  // namespace
}  // namespace spillway::sim
