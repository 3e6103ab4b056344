// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "tools/doctor/probe_packet.h"

namespace spillway::doctor {

namespace {

using Bytes = std::vector<std::uint8_t>;

ProbePacket sample(ProbeType type) {
  return {.type = type,
          .tos = 0xA5,
          .reply_tos = 0xC8,
          .session = 0x0123456789ABCDEF,
          .sequence = 77,
          .sent_ns = -1,
          .received_ns = 1LL << 60,
          .replied_ns = 12345};
}

Bytes written(ProbeType type, std::size_t size) {
  Bytes bytes(size, 0xEE);
  write_probe(sample(type), bytes);
  return bytes;
}

ArrivalSummary sample_summary() {
  ArrivalSummary summary;
  summary.watches = true;
  summary.overflowed = 3;
  summary.count(1464, 1);
  summary.count(214, 48);
  summary.count(214, 48);
  summary.count_stale(256, "eth0");
  summary.host = "node-7.example";
  return summary;
}

TEST(ProbePacket, ComesBackAsItWasWritten) {
  for (const ProbeType type : {ProbeType::kEcho, ProbeType::kEchoReply, ProbeType::kStart,
                               ProbeType::kStartReply, ProbeType::kSummary}) {
    EXPECT_EQ(read_probe(written(type, 1000)), sample(type));
  }
}

TEST(ProbePacket, IsRefusedWhateverIsCutOff) {
  for (const ProbeType type : {ProbeType::kEcho, ProbeType::kSummaryReply}) {
    const Bytes whole = written(type, kSummaryBytes);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_FALSE(read_probe(base::ByteView(whole).first(size))) << size;
    }
  }
}

TEST(ProbePacket, IsRefusedWhenItIsNotOurs) {
  for (const std::size_t at : {0U, 4U, 5U, 20U, 22U}) {  // magic, version, type, size, zero
    Bytes bytes = written(ProbeType::kEcho, 100);
    bytes[at] ^= 0x80;
    EXPECT_FALSE(read_probe(bytes)) << at;
  }
  Bytes longer = written(ProbeType::kEcho, 100);
  longer.push_back(0);
  EXPECT_FALSE(read_probe(longer));
}

TEST(ProbePacket, AsksForASummaryWithAsManyBytesAsItWillCost) {
  Bytes bytes = written(ProbeType::kEcho, kSummaryBytes - 1);
  bytes[5] = static_cast<std::uint8_t>(ProbeType::kSummary);
  EXPECT_FALSE(read_probe(bytes));
}

TEST(ProbePacket, IsNeverTakenForASpillwayPacket) {
  EXPECT_NE(written(ProbeType::kEcho, kProbeBytes)[0] >> 4, 1);
}

TEST(ArrivalSummary, ComesBackAsItWasWritten) {
  Bytes bytes = written(ProbeType::kSummaryReply, kSummaryBytes);
  write_summary(sample_summary(), bytes);
  EXPECT_EQ(read_summary(bytes), sample_summary());
  ASSERT_EQ(sample_summary().seen().size(), 2U);
  EXPECT_EQ(sample_summary().seen()[1], (ArrivalKind{214, 48, 2}));
}

TEST(ArrivalSummary, IsRefusedWhateverIsCutOff) {
  Bytes bytes = written(ProbeType::kSummaryReply, kSummaryBytes);
  write_summary(sample_summary(), bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(read_summary(base::ByteView(bytes).first(size))) << size;
  }
}

TEST(ArrivalSummary, DoesNotTakeNamesThatCouldEndUpAsCommands) {
  for (const char* name : {"a b", "$(reboot)", "x;y", "\x1b[31m", "a\nb"}) {
    ArrivalSummary summary = sample_summary();
    summary.host = name;
    Bytes bytes = written(ProbeType::kSummaryReply, kSummaryBytes);
    write_summary(summary, bytes);
    EXPECT_FALSE(read_summary(bytes)) << name;
    summary.host = plain_name(name);
    write_summary(summary, bytes);
    EXPECT_TRUE(read_summary(bytes)) << name;
  }
}

TEST(ArrivalSummary, CountsTogetherWhatItHasNoRoomFor) {
  ArrivalSummary summary;
  for (std::size_t length = 100; length < 100 + ArrivalSummary::kMaxKinds + 5; ++length) {
    summary.count(length, 1);
  }
  EXPECT_EQ(summary.seen().size(), ArrivalSummary::kMaxKinds);
  EXPECT_EQ(summary.others, 5U);
}

}  // namespace

}  // namespace spillway::doctor
