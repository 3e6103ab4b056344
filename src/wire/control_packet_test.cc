// SPDX-License-Identifier: Apache-2.0
#include "wire/control_packet.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway::wire {
namespace {

using Bytes = std::vector<std::uint8_t>;

ControlPacket sample(ControlType type) {
  ControlPacket packet;
  packet.type = type;
  packet.job = 3;
  packet.epoch = 9;
  packet.source = 2;
  packet.destination = 5;
  packet.message = {
      .operation = 77, .signature = 4, .piece = 6, .source = 5, .phase = Phase::kGather};
  packet.path = 11;
  packet.timestamp_us = 123456;
  packet.sequence = 42;
  packet.generation = 7;
  packet.probe = {.packets = 900, .important = 30, .transmitted = 950, .all_sent = true};
  packet.stop = {.outcome = Outcome::kWithinBudget, .delivered = 899};
  packet.bitmap.range.first = 64;
  packet.bitmap.range.count = 21;
  packet.bitmap.range.bits.fill(0xA5);
  packet.bitmap.missing = 12;
  packet.bitmap.allowed = 9;
  packet.credit.granted = 512;
  packet.credit.answer = true;
  packet.credit.path_count = 2;
  packet.credit.paths[0] = {1, 0, 15, 100, 140000, 3, 2, 55};
  packet.credit.paths[1] = {2, 0, 16, 101, 150000, 4, 1, 56};
  return packet;
}

constexpr std::array kTypes = {ControlType::kProbe, ControlType::kStop, ControlType::kBitmap,
                               ControlType::kCredit, ControlType::kWait};

Bytes written(const ControlPacket& packet, const PacketAuth& auth) {
  Bytes bytes(kMaxControlPacket);
  bytes.resize(write_control_packet(packet, auth, bytes));
  return bytes;
}

PacketAuth keyed() {
  const Bytes secret(16, 0x5A);
  return PacketAuth::keyed(secret).value();
}

TEST(ControlPacket, EveryTypeReadsBackAsWritten) {
  const PacketAuth auth = PacketAuth::crc32c(1);
  for (const ControlType type : kTypes) {
    const ControlPacket packet = sample(type);
    const Bytes bytes = written(packet, auth);
    EXPECT_EQ(bytes.size(), packet.size(auth.check_size()));
    ControlPacket read;
    ASSERT_EQ(open_control_packet(bytes, auth, read), PacketFault::kNone);
    EXPECT_EQ(read.type, type);
    EXPECT_EQ(read.message, packet.message);
    EXPECT_EQ(read.source, 2);
    EXPECT_EQ(read.destination, 5);
    EXPECT_EQ(read.sequence, 42U);
    EXPECT_EQ(read.generation, 7U);
    EXPECT_EQ(written(read, auth), bytes);  // the body too
  }
}

TEST(ControlPacket, BitmapTellsDeliveredPackets) {
  const ControlPacket packet = sample(ControlType::kBitmap);
  EXPECT_TRUE(packet.bitmap.range.delivered(64));  // 0xA5: bits 0, 2, 5, 7
  EXPECT_FALSE(packet.bitmap.range.delivered(65));
  EXPECT_TRUE(packet.bitmap.range.delivered(66));
}

TEST(ControlPacket, AnyFlippedBitIsRefused) {
  const PacketAuth auth = keyed();
  for (const ControlType type : kTypes) {
    const Bytes good = written(sample(type), auth);
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
      Bytes bad = good;
      bad[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
      ControlPacket read;
      EXPECT_NE(open_control_packet(bad, auth, read), PacketFault::kNone) << bit;
    }
  }
}

TEST(ControlPacket, AnyCutIsRefused) {
  const PacketAuth auth = PacketAuth::crc32c(1);
  for (const ControlType type : kTypes) {
    const Bytes good = written(sample(type), auth);
    for (std::size_t size = 0; size < good.size(); ++size) {
      ControlPacket read;
      EXPECT_NE(open_control_packet(base::ByteView(good).first(size), auth, read),
                PacketFault::kNone);
    }
  }
}

TEST(ControlPacket, KeyedAndUnkeyedDoNotMix) {
  const PacketAuth crc = PacketAuth::crc32c(1);
  ControlPacket read;
  EXPECT_EQ(open_control_packet(written(sample(ControlType::kProbe), crc), keyed(), read),
            PacketFault::kAuthMode);
  EXPECT_EQ(open_control_packet(written(sample(ControlType::kProbe), keyed()), crc, read),
            PacketFault::kAuthMode);
}

// A peer with the key may still be broken: fields are bounded behind the check.
TEST(ControlPacket, FieldsOutOfRangeAreRefusedBehindAGoodCheck) {
  const PacketAuth auth = PacketAuth::crc32c(1);
  const auto resealed = [&](ControlType type, std::size_t at, std::uint8_t value) {
    Bytes bytes = written(sample(type), auth);
    bytes[at] = value;
    const base::ByteView body = base::ByteView(bytes).first(bytes.size() - SPILLWAY_CRC_SIZE);
    const Check check = auth.head_check(body.first(36), body.subspan(36));
    std::copy_n(check.bytes.begin(), SPILLWAY_CRC_SIZE, bytes.end() - SPILLWAY_CRC_SIZE);
    ControlPacket read;
    return open_control_packet(bytes, auth, read);
  };
  EXPECT_EQ(resealed(ControlType::kProbe, 36, sample(ControlType::kProbe).probe.packets & 0xFF),
            PacketFault::kNone);  // resealing itself works
  EXPECT_EQ(resealed(ControlType::kProbe, 36 + 3, 1), PacketFault::kField);         // packets
  EXPECT_EQ(resealed(ControlType::kProbe, 36 + 4 + 1, 0xFF), PacketFault::kField);  // important
  EXPECT_EQ(resealed(ControlType::kProbe, 36 + 12, 2), PacketFault::kField);        // all_sent
  EXPECT_EQ(resealed(ControlType::kStop, 36 + 4, 4), PacketFault::kField);          // outcome
  EXPECT_EQ(resealed(ControlType::kBitmap, 36 + 2, 1), PacketFault::kField);        // first
  EXPECT_EQ(resealed(ControlType::kBitmap, 36 + 4, 30), PacketFault::kField);       // count
  EXPECT_EQ(resealed(ControlType::kCredit, 36 + 4, 3), PacketFault::kField);        // path_count
  EXPECT_EQ(resealed(ControlType::kWait, 18, 1), PacketFault::kField);              // packet
}

}  // namespace
}  // namespace spillway::wire
