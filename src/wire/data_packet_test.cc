// SPDX-License-Identifier: Apache-2.0
#include "wire/data_packet.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

extern "C" unsigned spillway_test_data_header_size(void);

namespace spillway::wire {
namespace {

const std::array<std::uint8_t, 16> kSecret = {1, 2,  3,  4,  5,  6,  7,  8,
                                              9, 10, 11, 12, 13, 14, 15, 16};

DataHeader example_header(bool keyed) {
  return {.job = 0x1234,
          .epoch = 7,
          .stamp = {.message = {.operation = 99,
                                .signature = 3,
                                .piece = 2,
                                .source = 5,
                                .phase = Phase::kGather},
                    .timestamp_us = 0xDEADBEEF,
                    .packet = 47,
                    .path = 200,
                    .priority = 6,
                    .importance = 3,
                    .last = true,
                    .retransmit = true},
          .keyed = keyed,
          .row_log2 = 13,
          .rotations = 2,
          .planes = 16,
          .row = 4,
          .slot = 1,
          .quanta = 22,
          .head_bytes = 120,
          .scale = 0.25F};
}

PacketAuth auth_for(bool keyed) {
  return keyed ? PacketAuth::keyed(kSecret).value() : PacketAuth::crc32c(0xABCD);
}

struct Example {
  explicit Example(bool is_keyed) : auth(auth_for(is_keyed)), header(example_header(is_keyed)) {
    base::RandomSequence random(1);
    planes.resize(header.plane_bytes());
    for (std::uint8_t& byte : planes) {
      byte = static_cast<std::uint8_t>(random.next_word());
    }
    packet.resize(header.packet_size());
    EXPECT_EQ(write_data_packet(header, planes, auth, packet), packet.size());
  }

  PacketAuth auth;
  DataHeader header;
  std::vector<std::uint8_t> planes;
  std::vector<std::uint8_t> packet;
};

TEST(PacketHeader, IsTheSameInCAndCpp) {
  EXPECT_EQ(spillway_test_data_header_size(), sizeof(spillway_data_header));
}

TEST(DataHeader, ReadsBackEveryField) {
  for (const bool keyed : {false, true}) {
    const Example example(keyed);
    DataHeader read;
    ASSERT_EQ(read_data_header(example.packet, read), PacketFault::kNone);
    EXPECT_EQ(read.job, 0x1234);
    EXPECT_EQ(read.epoch, 7);
    EXPECT_EQ(read.stamp.message, example.header.stamp.message);
    EXPECT_EQ(read.stamp.packet, 47);
    EXPECT_EQ(read.keyed, keyed);
    EXPECT_TRUE(read.stamp.last && read.stamp.retransmit);
    EXPECT_EQ(read.stamp.priority, 6);
    EXPECT_EQ(read.stamp.importance, 3);
    EXPECT_EQ(read.stamp.path, 200);
    EXPECT_EQ(read.stamp.timestamp_us, 0xDEADBEEF);
    EXPECT_EQ(read.row_log2, 13);
    EXPECT_EQ(read.rotations, 2);
    EXPECT_EQ(read.planes, 16);
    EXPECT_EQ(read.row, 4);
    EXPECT_EQ(read.first(), 704U);
    EXPECT_EQ(read.count(), 704U);
    EXPECT_EQ(read.head_bytes, 120);
    EXPECT_EQ(read.scale, 0.25F);
  }
}

TEST(DataHeader, TheLastPacketOfARowIsShorter) {
  DataHeader header = example_header(false);
  header.slot = 11;
  EXPECT_EQ(header.first(), 7744U);
  EXPECT_EQ(header.count(), 448U);
}

TEST(DataHeader, RefusesEveryFieldOutsideItsRange) {
  const Example example(false);
  const auto fault_with = [&](std::size_t offset, std::uint8_t value) {
    std::vector<std::uint8_t> packet = example.packet;
    packet[offset] = value;
    DataHeader header;
    return read_data_header(packet, header);
  };
  EXPECT_EQ(fault_with(0, 0x21), PacketFault::kVersion);
  EXPECT_EQ(fault_with(0, 0x12), PacketFault::kType);
  EXPECT_EQ(fault_with(1, 0x80), PacketFault::kField);   // unknown flag
  EXPECT_EQ(fault_with(24, 0x3D), PacketFault::kField);  // unknown codec
  EXPECT_EQ(fault_with(24, 0x2D), PacketFault::kField);  // bytes have no scale
  EXPECT_EQ(fault_with(24, 0x17), PacketFault::kField);  // row of 2^7
  EXPECT_EQ(fault_with(25, 0x00), PacketFault::kField);  // no planes
  EXPECT_EQ(fault_with(25, 0x61), PacketFault::kField);  // 33 planes
  EXPECT_EQ(fault_with(25, 0x10), PacketFault::kField);  // a scale but no rotation
  EXPECT_EQ(fault_with(28, 200), PacketFault::kField);   // starts behind the row
  EXPECT_EQ(fault_with(29, 0), PacketFault::kField);     // no coordinates
  EXPECT_EQ(fault_with(29, 255), PacketFault::kField);   // longer than any packet
  EXPECT_EQ(fault_with(30, 0), PacketFault::kField);     // no head
  EXPECT_EQ(fault_with(35, 0xBE), PacketFault::kField);  // negative scale
  EXPECT_EQ(fault_with(35, 0x7F), PacketFault::kField);  // infinite or NaN scale with rotations
}

TEST(DataPacket, IsTrustedExactlyUpToTheLastWholeCheck) {
  for (const bool keyed : {false, true}) {
    const Example example(keyed);
    const std::size_t check = example.auth.check_size();
    for (std::size_t size = 0; size <= example.packet.size(); ++size) {
      const base::ByteView cut = base::ByteView(example.packet).first(size);
      OpenedPacket opened;
      const PacketFault fault = open_data_packet(cut, example.auth, opened);
      if (size < sizeof(spillway_data_header)) {
        ASSERT_EQ(fault, PacketFault::kTooShort);
        continue;
      }
      if (size < example.header.head_end()) {
        ASSERT_EQ(fault, PacketFault::kCutInHead);
        continue;
      }
      ASSERT_EQ(fault, PacketFault::kNone) << size;
      std::vector<std::uint8_t> planes(example.planes.size());
      const TrustedPlanes trusted = copy_trusted_planes(cut, opened, example.auth, planes);
      const std::size_t tail = size - example.header.head_end();
      const std::size_t segments = tail / (SPILLWAY_TAIL_SEGMENT + check);
      const std::size_t expected =
          size == example.packet.size()
              ? example.planes.size()
              : example.header.head_bytes + segments * SPILLWAY_TAIL_SEGMENT;
      ASSERT_EQ(trusted.bytes, expected) << size;
      ASSERT_FALSE(trusted.corrupt_tail);
      ASSERT_TRUE(std::equal(planes.begin(), planes.begin() + static_cast<long>(trusted.bytes),
                             example.planes.begin()));
    }
  }
}

TEST(DataPacket, EveryFlippedBitIsNoticed) {
  for (const bool keyed : {false, true}) {
    const Example example(keyed);
    for (std::size_t bit = 0; bit < example.packet.size() * 8; ++bit) {
      std::vector<std::uint8_t> packet = example.packet;
      packet[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
      OpenedPacket opened;
      const PacketFault fault = open_data_packet(packet, example.auth, opened);
      if (bit / 8 < example.header.head_end()) {
        ASSERT_NE(fault, PacketFault::kNone) << "bit " << bit;
        continue;
      }
      ASSERT_EQ(fault, PacketFault::kNone);
      std::vector<std::uint8_t> planes(example.planes.size());
      const TrustedPlanes trusted = copy_trusted_planes(packet, opened, example.auth, planes);
      ASSERT_TRUE(trusted.corrupt_tail) << "bit " << bit;
      ASSERT_TRUE(std::equal(planes.begin(), planes.begin() + static_cast<long>(trusted.bytes),
                             example.planes.begin()));
    }
  }
}

TEST(DataPacket, LongerThanItsHeaderSaysIsRefused) {
  Example example(false);
  example.packet.push_back(0);
  OpenedPacket opened;
  EXPECT_EQ(open_data_packet(example.packet, example.auth, opened), PacketFault::kTooLong);
}

TEST(DataPacket, TailSegmentsCannotBeMovedBetweenPackets) {
  Example a(true);
  DataHeader other = a.header;
  other.stamp.packet = 48;
  std::vector<std::uint8_t> b(other.packet_size());
  write_data_packet(other, a.planes, a.auth, b);
  std::copy(b.begin() + static_cast<long>(other.head_end()), b.end(),
            a.packet.begin() + static_cast<long>(a.header.head_end()));
  OpenedPacket opened;
  ASSERT_EQ(open_data_packet(a.packet, a.auth, opened), PacketFault::kNone);
  std::vector<std::uint8_t> planes(a.planes.size());
  const TrustedPlanes trusted = copy_trusted_planes(a.packet, opened, a.auth, planes);
  EXPECT_TRUE(trusted.corrupt_tail);
  EXPECT_EQ(trusted.bytes, a.header.head_bytes);
}

TEST(PacketAuth, OtherSaltsKeysAndModesAreRefused) {
  const Example plain(false);
  const Example keyed(true);
  OpenedPacket opened;
  EXPECT_EQ(open_data_packet(plain.packet, PacketAuth::crc32c(0xABCE), opened),
            PacketFault::kHeadCheck);
  EXPECT_EQ(open_data_packet(plain.packet, keyed.auth, opened), PacketFault::kAuthMode);
  EXPECT_EQ(open_data_packet(keyed.packet, plain.auth, opened), PacketFault::kAuthMode);
  std::array<std::uint8_t, 16> other_secret = kSecret;
  other_secret[0] ^= 1;
  EXPECT_EQ(open_data_packet(keyed.packet, PacketAuth::keyed(other_secret).value(), opened),
            PacketFault::kHeadCheck);
}

TEST(PacketAuth, UnsaltedHeadCheckIsPlainCrc32c) {
  const std::array<std::uint8_t, 9> digits = {'1', '2', '3', '4', '5', '6', '7', '8', '9'};
  const PacketAuth auth = PacketAuth::crc32c(0);
  const Check check =
      auth.head_check(base::ByteView(digits).first(4), base::ByteView(digits).subspan(4));
  EXPECT_EQ(base::load_le<std::uint32_t>(check.bytes.data()), 0xE3069283U);
}

TEST(PacketAuth, ShortSecretsAreRefusedWithASentence) {
  const base::Result<PacketAuth> auth = PacketAuth::keyed(base::ByteView(kSecret).first(15));
  ASSERT_FALSE(auth.ok());
  EXPECT_NE(auth.status().message().find("at least 16"), std::string::npos);
}

}  // namespace
}  // namespace spillway::wire
