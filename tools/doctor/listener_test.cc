// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>

#include "base/clock.h"
#include "harness/slowdown.h"
#include "net/system_call.h"
#include "tools/doctor/listener.h"
#include "tools/doctor/peer_checks.h"
#include "tools/doctor/trim_probe.h"
#include "wire/data_packet.h"
#include "wire/packet.h"

namespace spillway::doctor {

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr base::Instant at(std::int64_t ms) {
  return base::Instant(base::milliseconds(ms));
}

class ResponderTest : public testing::Test {
 protected:
  Reply ask(ProbeType type, std::uint64_t session, std::size_t size, base::Instant now = at(0),
            std::uint64_t overflowed = 0) {
    Bytes bytes(size);
    write_probe({.type = type, .tos = 4, .reply_tos = 200, .session = session}, bytes);
    return take(bytes, 100, now, overflowed);
  }
  Reply take(const Bytes& bytes, std::uint8_t tos, base::Instant now = at(0),
             std::uint64_t overflowed = 0) {
    return responder_.take({.bytes = bytes, .from = {}, .tos = tos, .wall_ns = 11}, overflowed, now,
                           22);
  }

  Responder responder_{"node7", true};
};

TEST_F(ResponderTest, SaysHowAQuestionCameAndIsNeverLongerThanIt) {
  for (const std::size_t size : {kProbeBytes, kProbeBytes + 1, std::size_t{1472}}) {
    const Reply reply = ask(ProbeType::kEcho, 5, size);
    const std::optional<ProbePacket> packet = read_probe(reply.bytes);
    ASSERT_TRUE(packet);
    EXPECT_LE(reply.bytes.size(), size);
    EXPECT_EQ(packet->type, ProbeType::kEchoReply);
    EXPECT_EQ(packet->tos, 100);
    EXPECT_EQ(packet->received_ns, 11);
    EXPECT_EQ(packet->replied_ns, 22);
    EXPECT_EQ(reply.tos, 200);
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
  EXPECT_TRUE(ask(ProbeType::kEchoReply, 1, kProbeBytes).bytes.empty());
  EXPECT_TRUE(ask(ProbeType::kSummaryReply, 1, kSummaryBytes).bytes.empty());
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
  EXPECT_EQ(responder_.counters().rejected, 1U);
}

TEST_F(ResponderTest, AnswersNoFasterThanItsRate) {
  const std::int64_t asked = 1'000'000;
  for (std::int64_t i = 0; i < asked; ++i) {  // a million in a second
    ask(ProbeType::kEcho, 1, kProbeBytes, base::Instant(base::microseconds(i)));
  }
  const auto bits = static_cast<std::int64_t>(responder_.counters().answered * kProbeBytes * 8);
  // One second at the rate, one burst, and half a burst ahead.
  EXPECT_LE(bits, Responder::kReplyRate.count() + Responder::kReplyBurst.count() * 12 + 1000);
  EXPECT_GT(bits, Responder::kReplyRate.count() / 2);
  EXPECT_EQ(responder_.counters().limited + responder_.counters().answered,
            static_cast<std::uint64_t>(asked));
}

TEST(BurstPacket, IsAValidDataPacketThatKeepsItsTagWhenItIsCut) {
  for (const std::size_t limit : {256U, 548U, 1472U, 8972U}) {
    const Bytes packet = make_burst_packet(0xDEADBEEF, limit);
    EXPECT_LE(packet.size(), limit);
    EXPECT_GT(packet.size() + 41, limit);
    wire::OpenedPacket opened;
    EXPECT_EQ(wire::open_data_packet(packet, burst_auth(), opened), wire::PacketFault::kNone);
    EXPECT_EQ(opened.header.packet_size(), packet.size());
    EXPECT_EQ(burst_tag_of(base::ByteView(packet).first(48)), 0xDEADBEEF);
    EXPECT_FALSE(burst_tag_of(base::ByteView(packet).first(11)));
  }
}

}  // namespace

namespace {

// A listener on a thread of its own.
class RunningListener {
 public:
  explicit RunningListener(const std::string& address)
      : listener_(open(address)), stop_(::eventfd(0, EFD_CLOEXEC)), thread_([this] {
          listener_.run(stop_.get(), base::MonotonicClock().now() + base::seconds(3600));
        }) {}
  ~RunningListener() { finish(); }

  net::SocketAddress address() const { return listener_.addresses().front(); }
  const ResponderCounters& finish() {
    if (thread_.joinable()) {
      const std::uint64_t one = 1;
      EXPECT_EQ(::write(stop_.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
      thread_.join();
    }
    return listener_.counters();
  }

 private:
  static Listener open(const std::string& text) {
    const net::SocketAddress address = net::SocketAddress::parse(text).value();
    return Listener::open({&address, 1}).value();
  }

  Listener listener_;
  net::UniqueFd stop_;
  std::thread thread_;
};

constexpr TrimOptions kShortBurst = {.rate = base::bits_per_second(50'000'000),
                                     .length = base::milliseconds(50)};

bool is_fit(const Findings& findings) {
  return std::ranges::all_of(
      findings, [](const Finding& finding) { return finding.severity <= Severity::kNote; });
}

// Repeats the checks on a finding: a listener that waits for a processor replies as late as one
// behind a bad path.
Findings check_patiently(const net::SocketAddress& address) {
  harness::Limit limit;
  Findings findings = check_path_to(address, kShortBurst, 256);
  while (!is_fit(findings) && !limit.is_over()) {
    findings = check_path_to(address, kShortBurst, 256);
  }
  return findings;
}

void check_over(const std::string& address) {
  RunningListener listener(address);
  const Findings findings = check_patiently(listener.address());
  std::set<std::string> checks;
  for (const Finding& finding : findings) {
    checks.insert(finding.check);
    EXPECT_LE(finding.severity, Severity::kNote) << finding.check << ": " << finding.finding;
  }
  EXPECT_EQ(checks,
            (std::set<std::string>{"round-trip", "clock-offset", "path-mtu", "dscp-there",
                                   "dscp-back", "ecn-there", "ecn-back", "trim", "stale-lengths"}));
  const ResponderCounters& counters = listener.finish();
  EXPECT_GT(counters.counted, 10U);
  EXPECT_EQ(counters.garbage, 0U);
}

TEST(Listener, FindsLoopbackFitOverIpv4) {
  check_over("127.0.0.1:0");
}

TEST(Listener, FindsLoopbackFitOverIpv6) {
  if (!ProbeSocket::open(net::SocketAddress::parse("[::1]:0").value()).ok()) {
    GTEST_SKIP() << "this host has no IPv6";
  }
  check_over("[::1]:0");
}

TEST(Listener, IsMissedWhereThereIsNone) {
  base::Result<ProbeSocket> taken =
      ProbeSocket::open(net::SocketAddress::parse("127.0.0.1:0").value());
  ASSERT_TRUE(taken.ok());
  const net::SocketAddress silent = taken->local();  // open, but nothing replies
  const Findings findings = check_path_to(silent, kShortBurst, std::nullopt);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].check, "round-trip");
  EXPECT_EQ(findings[0].severity, Severity::kError);
}

}  // namespace

}  // namespace spillway::doctor
