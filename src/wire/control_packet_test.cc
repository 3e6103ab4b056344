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
  packet.probe = {
      .packets = 900, .important = 30, .transmitted = 950, .settled = 4'000, .all_sent = true};
  packet.stop = {.outcome = Outcome::kWithinBudget, .delivered = 899};
  packet.bitmap.range.first = 64;
  packet.bitmap.range.count = 21;
  packet.bitmap.range.bits.fill(0xA5);
  packet.bitmap.missing = 12;
  packet.bitmap.allowed = 9;
  packet.credit.granted = 512;
  packet.credit.answer = true;
  packet.credit.path_count = 2;
  packet.credit.paths[0] = {1, {}, 15, 100, 140000, 3, 2, 55, 7};
  packet.credit.paths[1] = {2, {}, 16, 101, 150000, 4, 1, 56, 8};
  return packet;
}

constexpr std::array kTypes = {ControlType::kProbe, ControlType::kStop, ControlType::kBitmap,
                               ControlType::kCredit, ControlType::kWait};

Bytes written(const ControlPacket& packet, const PacketAuth& auth) {
  Bytes bytes(kMaxControlPacket);
  bytes.resize(write_control_packet(packet, auth, bytes));
  return bytes;
}

constexpr std::uint64_t kRange = std::uint64_t{1} << 32;

PacketAuth tags(std::uint8_t secret = 0x5A) {
  return PacketAuth::of_secret(Bytes(16, secret)).value();
}

TEST(ControlPacket, EveryTypeReadsBackAsWritten) {
  const PacketAuth auth = tags();
  for (const ControlType type : kTypes) {
    const ControlPacket packet = sample(type);
    const Bytes bytes = written(packet, auth);
    EXPECT_EQ(bytes.size(), packet.size());
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
  const PacketAuth auth = tags();
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

TEST(ControlPacket, PassesUnderItsOwnKeyAlone) {
  ControlPacket read;
  const Bytes bytes = written(sample(ControlType::kProbe), tags());
  EXPECT_EQ(open_control_packet(bytes, tags(0x5B), read), PacketFault::kHeadCheck);
  EXPECT_EQ(open_control_packet(bytes, PacketAuth::crc32c(1), read), PacketFault::kHeadCheck);
}

TEST(ControlPacket, ItsSequenceIsMadeWholeAndUnderTheCheck) {
  for (const std::uint64_t sequence : {kRange - 1, kRange, kRange + 1, 77 * kRange + 5}) {
    ControlPacket packet = sample(ControlType::kStop);
    packet.sequence = sequence;
    const Bytes bytes = written(packet, tags());
    ControlPacket read;
    ASSERT_EQ(open_control_packet(bytes, tags(), read, sequence - 3), PacketFault::kNone);
    EXPECT_EQ(read.sequence, sequence);
    // The same low bits of another round.
    EXPECT_EQ(open_control_packet(bytes, tags(), read, sequence + kRange), PacketFault::kHeadCheck);
  }
}

// A peer with the key may still be broken: fields are bounded behind the check.
TEST(ControlPacket, FieldsOutOfRangeAreRefusedBehindAGoodCheck) {
  const PacketAuth auth = PacketAuth::crc32c(1);
  constexpr std::size_t kBody = sizeof(spillway_control_header);
  const auto resealed = [&](ControlType type, std::size_t at, std::uint8_t value) {
    Bytes bytes = written(sample(type), auth);
    bytes[at] = value;
    const base::ByteView body = base::ByteView(bytes).first(bytes.size() - SPILLWAY_CHECK_SIZE);
    const Check check = auth.check(sample(type).name(), body);
    std::copy(check.bytes.begin(), check.bytes.end(), bytes.end() - SPILLWAY_CHECK_SIZE);
    ControlPacket read;
    return open_control_packet(bytes, auth, read);
  };
  EXPECT_EQ(resealed(ControlType::kProbe, kBody, sample(ControlType::kProbe).probe.packets & 0xFF),
            PacketFault::kNone);  // resealing itself works
  EXPECT_EQ(resealed(ControlType::kProbe, kBody + 3, 1), PacketFault::kField);         // packets
  EXPECT_EQ(resealed(ControlType::kProbe, kBody + 4 + 1, 0xFF), PacketFault::kField);  // important
  EXPECT_EQ(resealed(ControlType::kProbe, kBody + 16, 2), PacketFault::kField);        // all_sent
  EXPECT_EQ(resealed(ControlType::kStop, kBody + 4, 4), PacketFault::kField);          // outcome
  EXPECT_EQ(resealed(ControlType::kBitmap, kBody + 2, 1), PacketFault::kField);        // first
  EXPECT_EQ(resealed(ControlType::kBitmap, kBody + 4, 30), PacketFault::kField);       // count
  EXPECT_EQ(resealed(ControlType::kCredit, kBody + 4, 3), PacketFault::kField);        // path_count
  EXPECT_EQ(resealed(ControlType::kWait, offsetof(spillway_packet_header, packet), 1),
            PacketFault::kField);  // packet
}

}  // namespace
}  // namespace spillway::wire
