// SPDX-License-Identifier: Apache-2.0
#include "wire/control_packet.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace spillway::wire {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t kRange = std::uint64_t{1} << 32;

CallText call_of(std::uint16_t rank, std::string_view text, bool is_whole) {
  CallText call{.rank = rank,
                .is_whole = is_whole,
                .bytes = static_cast<std::uint8_t>(text.size()),
                .text = {}};
  std::copy(text.begin(), text.end(), call.text.begin());
  return call;
}

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
  packet.credit.paths[0] = {1, {}, 15, 100, 3, ~2ULL, 55, 7};
  packet.credit.paths[1] = {2, {}, 16, 101, 4, ~0ULL, 56, 8};
  packet.leave = {.culprit = 3, .cause = FailureCause::kMismatch};
  if (type == ControlType::kLeave) {  // shares memory with the bitmap
    packet.mismatch.operation = kRange + 77;
    packet.mismatch.calls[0] = call_of(5, "all_reduce of 10 float32 (sum)", true);
    packet.mismatch.calls[1] = call_of(3, "barrier", false);
    packet.mismatch.is_point_to_point = false;
  }
  return packet;
}

constexpr std::array kTypes = {ControlType::kProbe,  ControlType::kStop, ControlType::kBitmap,
                               ControlType::kCredit, ControlType::kWait, ControlType::kLeave};

Bytes written(const ControlPacket& packet, const PacketAuth& auth) {
  Bytes bytes(kMaxControlPacket);
  bytes.resize(write_control_packet(packet, auth, bytes));
  return bytes;
}

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
    EXPECT_EQ(written(read, auth), bytes);  // compares the body too
  }
}

TEST(ControlPacket, ALeaveSaysBothCallsWhereTheyDiffer) {
  ControlPacket read;
  ASSERT_EQ(open_control_packet(written(sample(ControlType::kLeave), tags()), tags(), read),
            PacketFault::kNone);
  const Mismatch& mismatch = read.mismatch;
  EXPECT_EQ(read.leave.culprit, 3);
  EXPECT_EQ(mismatch.operation, kRange + 77);
  EXPECT_FALSE(mismatch.is_point_to_point);
  EXPECT_EQ(mismatch.calls[0].rank, 5);
  EXPECT_TRUE(mismatch.calls[0].is_whole);
  EXPECT_EQ(mismatch.calls[0].view(), "all_reduce of 10 float32 (sum)");
  EXPECT_EQ(mismatch.calls[1].rank, 3);
  EXPECT_FALSE(mismatch.calls[1].is_whole);
  EXPECT_EQ(mismatch.calls[1].view(), "barrier");
}

TEST(ControlPacket, ALeaveForAnotherCauseHasNoCalls) {
  ControlPacket packet = sample(ControlType::kLeave);
  packet.leave.cause = FailureCause::kAborted;
  EXPECT_EQ(written(packet, tags()).size(),
            sizeof(spillway_control_header) + sizeof(spillway_leave_body) + SPILLWAY_CHECK_SIZE);
}

TEST(ControlPacket, TheLongestLeaveFitsTheSmallestMtu) {
  ControlPacket packet = sample(ControlType::kLeave);
  const std::string longest(SPILLWAY_MAX_CALL_TEXT, 'x');
  packet.mismatch.calls = {call_of(0, longest, true), call_of(1, longest, true)};
  EXPECT_LE(written(packet, tags()).size(), 576U - SPILLWAY_IPV4_HEADER - SPILLWAY_UDP_HEADER);
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
  const PacketAuth auth = tags();
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
}

TEST(ControlPacket, ItsSequenceIsMadeWholeAndUnderTheCheck) {
  for (const std::uint64_t sequence : {kRange - 1, kRange, kRange + 1, 77 * kRange + 5}) {
    ControlPacket packet = sample(ControlType::kStop);
    packet.sequence = sequence;
    const Bytes bytes = written(packet, tags());
    ControlPacket read;
    ASSERT_EQ(open_control_packet(bytes, tags(), read, sequence - 3), PacketFault::kNone);
    EXPECT_EQ(read.sequence, sequence);
    // The same low bits, one range further on.
    EXPECT_EQ(open_control_packet(bytes, tags(), read, sequence + kRange), PacketFault::kHeadCheck);
  }
}

// A peer with the key may still be broken, so fields are checked even after the tag matched.
TEST(ControlPacket, FieldsOutOfRangeAreRefusedBehindAGoodCheck) {
  const PacketAuth auth = tags();
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
  constexpr std::size_t kMismatch = kBody + sizeof(spillway_leave_body);
  EXPECT_EQ(resealed(ControlType::kLeave, kBody + 2, kFailureCauses),
            PacketFault::kField);                                               // cause
  EXPECT_EQ(resealed(ControlType::kLeave, kBody + 2, 3), PacketFault::kField);  // no calls follow
  EXPECT_EQ(resealed(ControlType::kLeave, kMismatch + 12, 201), PacketFault::kField);  // bytes
  EXPECT_EQ(resealed(ControlType::kLeave, kMismatch + 13, 8), PacketFault::kField);    // bytes
  EXPECT_EQ(resealed(ControlType::kLeave, kMismatch + 14, 8), PacketFault::kField);    // flags
  EXPECT_EQ(resealed(ControlType::kWait, offsetof(spillway_packet_header, packet), 1),
            PacketFault::kField);  // packet
}

}  // namespace
}  // namespace spillway::wire
