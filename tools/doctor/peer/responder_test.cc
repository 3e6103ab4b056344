// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/peer/responder.h"

#include <gtest/gtest.h>

#include "tools/doctor/peer/burst.h"
#include "wire/data_packet.h"
#include "wire/traffic_class.h"

namespace spillway::doctor {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr base::Instant at(std::int64_t ms) {
  return base::Instant(base::milliseconds(ms));
}

class ResponderTest : public testing::Test {
 protected:
  Answer ask(ProbeType type, std::uint64_t session, std::size_t size, base::Instant now = at(0),
             std::uint64_t overflowed = 0) {
    Bytes bytes(size);
    write_probe({.type = type, .tos = 4, .answer_tos = 200, .session = session}, bytes);
    return take(bytes, 100, now, overflowed);
  }
  Answer take(const Bytes& bytes, std::uint8_t tos, base::Instant now = at(0),
              std::uint64_t overflowed = 0) {
    return responder_.take({.bytes = bytes, .from = {}, .tos = tos, .wall_ns = 11}, overflowed, now,
                           22);
  }

  Responder responder_{"node7", true};
};

TEST_F(ResponderTest, SaysHowAQuestionCameAndIsNeverLongerThanIt) {
  for (const std::size_t size : {kProbeBytes, kProbeBytes + 1, std::size_t{1472}}) {
    const Answer answer = ask(ProbeType::kEcho, 5, size);
    const std::optional<ProbePacket> packet = read_probe(answer.bytes);
    ASSERT_TRUE(packet);
    EXPECT_LE(answer.bytes.size(), size);
    EXPECT_EQ(packet->type, ProbeType::kEchoAnswer);
    EXPECT_EQ(packet->tos, 100);
    EXPECT_EQ(packet->received_ns, 11);
    EXPECT_EQ(packet->answered_ns, 22);
    EXPECT_EQ(answer.tos, 200);
  }
  ask(ProbeType::kStart, 5, kProbeBytes);
  EXPECT_EQ(ask(ProbeType::kSummary, 5, kSummaryBytes).bytes.size(), kSummaryBytes);
}

TEST_F(ResponderTest, CountsABurstForItsSessionAlone) {
  const std::uint64_t mine = 0xAAAA'0000'0007;
  ask(ProbeType::kStart, mine, kProbeBytes, at(0), 100);
  ask(ProbeType::kStart, 8, kProbeBytes);
  const Bytes packet = make_burst_packet(7, 1472);
  take(packet, burst_tos());
  take(Bytes(packet.begin(), packet.begin() + 214), SPILLWAY_DSCP_TRIMMED << 2);
  responder_.take_stale({base::ByteView(packet).first(60), 102, "eth3"});
  take(make_burst_packet(9, 1472), burst_tos());  // of an unknown session
  const auto summary =
      read_summary(ask(ProbeType::kSummary, mine, kSummaryBytes, at(0), 103).bytes);
  ASSERT_TRUE(summary);
  ASSERT_EQ(summary->seen().size(), 2U);
  EXPECT_EQ(summary->seen()[0].length, packet.size());
  EXPECT_EQ(summary->seen()[1], (ArrivalKind{214, SPILLWAY_DSCP_TRIMMED, 1}));
  EXPECT_EQ(summary->overflowed, 3U);
  EXPECT_EQ(summary->stale, 1U);
  EXPECT_EQ(summary->interface, "eth3");
  EXPECT_EQ(summary->host, "node7");
  EXPECT_TRUE(read_summary(ask(ProbeType::kSummary, 8, kSummaryBytes).bytes)->seen().empty());
  EXPECT_EQ(responder_.counters().garbage, 1U);
}

TEST_F(ResponderTest, NeverAnswersAnswersOrGarbage) {
  EXPECT_TRUE(ask(ProbeType::kEchoAnswer, 1, kProbeBytes).bytes.empty());
  EXPECT_TRUE(ask(ProbeType::kSummaryAnswer, 1, kSummaryBytes).bytes.empty());
  EXPECT_TRUE(take(Bytes(500, 0x11), 0).bytes.empty());
  EXPECT_TRUE(take({}, 0).bytes.empty());
  EXPECT_EQ(responder_.counters().garbage, 4U);
  EXPECT_TRUE(ask(ProbeType::kSummary, 1, kSummaryBytes).bytes.empty());  // never began
}

TEST_F(ResponderTest, KeepsABoundedNumberOfProbers) {
  for (std::uint64_t session = 0; session < ProberTable::kMaxProbers; ++session) {
    EXPECT_FALSE(ask(ProbeType::kStart, session, kProbeBytes).bytes.empty());
  }
  EXPECT_TRUE(ask(ProbeType::kStart, 1000, kProbeBytes).bytes.empty());
  EXPECT_FALSE(ask(ProbeType::kStart, 3, kProbeBytes, at(5)).bytes.empty());  // known already
  const base::Instant later = at(0) + ProberTable::kKept;
  EXPECT_FALSE(ask(ProbeType::kStart, 1000, kProbeBytes, later).bytes.empty());
  EXPECT_EQ(responder_.counters().turned_away, 1U);
}

TEST_F(ResponderTest, AnswersNoFasterThanItsRate) {
  const std::int64_t asked = 1'000'000;
  for (std::int64_t i = 0; i < asked; ++i) {  // a million in a second
    ask(ProbeType::kEcho, 1, kProbeBytes, base::Instant(base::microseconds(i)));
  }
  const auto bits = static_cast<std::int64_t>(responder_.counters().answered * kProbeBytes * 8);
  // One second at the rate, one burst, and half a burst ahead.
  EXPECT_LE(bits, Responder::kAnswerRate.count() + Responder::kAnswerBurst.count() * 12 + 1000);
  EXPECT_GT(bits, Responder::kAnswerRate.count() / 2);
  EXPECT_EQ(responder_.counters().limited + responder_.counters().answered,
            static_cast<std::uint64_t>(asked));
}

TEST(BurstPacket, IsAValidDataPacketThatKeepsItsTagWhenItIsCut) {
  for (const std::size_t limit : {256U, 548U, 1472U, 8972U}) {
    const Bytes packet = make_burst_packet(0xDEADBEEF, limit);
    EXPECT_LE(packet.size(), limit);
    EXPECT_GT(packet.size() + 41, limit);
    wire::OpenedPacket opened;
    EXPECT_EQ(wire::open_data_packet(packet, wire::PacketAuth::crc32c(0), opened),
              wire::PacketFault::kNone);
    EXPECT_EQ(opened.header.packet_size(), packet.size());
    EXPECT_EQ(burst_tag_of(base::ByteView(packet).first(48)), 0xDEADBEEF);
    EXPECT_FALSE(burst_tag_of(base::ByteView(packet).first(11)));
  }
}

}  // namespace
}  // namespace spillway::doctor
