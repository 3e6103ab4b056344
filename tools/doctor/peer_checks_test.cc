// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cerrno>

#include "tools/doctor/peer_checks.h"
#include "tools/doctor/trim_probe.h"
#include "wire/packet.h"

namespace spillway::doctor {

// The judgements about the path between two hosts, on made-up observations.

namespace {

// ------------------------------------------------------------------ round trips

TEST(RoundTrips, OffsetIsThatOfTheFastestEcho) {
  // Our clock is 1000 behind: the echo left at 0 and arrived at 1010; the reply left at 1030 and
  // arrived at 50.
  const EchoSample sample = sample_of(
      {.packet = {.sent_ns = 0, .received_ns = 1010, .replied_ns = 1030}, .arrived_ns = 50});
  EXPECT_EQ(sample.round_trip, base::nanoseconds(30));
  EXPECT_EQ(sample.offset, base::nanoseconds(995));
  const auto slow = [](std::int64_t ns) {
    return EchoSample{base::nanoseconds(ns), base::seconds(9)};
  };
  const auto trips = summarise({slow(500), sample, slow(100)}, 4);
  ASSERT_TRUE(trips);
  EXPECT_EQ(trips->smallest, base::nanoseconds(30));
  EXPECT_EQ(trips->median, base::nanoseconds(100));
  EXPECT_EQ(trips->offset, base::nanoseconds(995));
  EXPECT_EQ(trips->lost, 1U);
  EXPECT_FALSE(summarise({}, 4));
}

TEST(RoundTrips, StampsThatMakeNoSenseDoNoHarm) {
  const EchoSample sample =
      sample_of({.packet = {.sent_ns = 5, .received_ns = INT64_MIN, .replied_ns = INT64_MAX}});
  EXPECT_GE(sample.round_trip, base::Duration());
}

TEST(RoundTrips, LossAndFarClocksAreNoticed) {
  const Findings good = check_round_trips({.lost = 0, .asked = 20});
  EXPECT_EQ(worst_of(good), Severity::kOk);
  const Findings bad = check_round_trips({.offset = base::seconds(-5), .lost = 4, .asked = 20});
  EXPECT_EQ(bad[0].severity, Severity::kWarning);
  EXPECT_EQ(bad[1].severity, Severity::kNote);
  EXPECT_NE(bad[1].finding.find("behind"), std::string::npos);
  EXPECT_EQ(unreachable({}, ECONNREFUSED).severity, Severity::kError);
  EXPECT_EQ(unreachable({}, 0).severity, Severity::kError);
}

// ------------------------------------------------------------------ MTU

TEST(PathMtu, HalvingFindsTheLargestThatPasses) {
  for (const unsigned limit : {0U, 575U, 576U, 577U, 1400U, 1499U, 1500U, 9000U}) {
    int tried = 0;
    const unsigned found = largest_that_passes(576, 1500, [&](unsigned mtu) {
      ++tried;
      return mtu <= limit;
    });
    EXPECT_EQ(found, limit < 576 ? 0 : std::min(limit, 1500U));
    EXPECT_LE(tried, 13);
  }
}

TEST(PathMtu, OnlyAPathThatNobodyExplainedIsABlackHole) {
  EXPECT_EQ(check_path_mtu({"eth0", 1500, 1500, 1500}).severity, Severity::kOk);
  EXPECT_EQ(check_path_mtu({"eth0", 1500, 1400, 1400}).severity, Severity::kNote);
  const Finding hole = check_path_mtu({"eth0", 1500, 1400, 1500});
  EXPECT_EQ(hole.severity, Severity::kError);
  EXPECT_NE(hole.remedy.find("ip link set dev eth0 mtu 1400"), std::string::npos);
  EXPECT_EQ(check_path_mtu({"eth0", 1500, 0, 1500}).severity, Severity::kError);
}

// ------------------------------------------------------------------ DSCP and ECN

std::vector<MarkTrial> survived(std::vector<MarkTrial> trials) {
  for (MarkTrial& trial : trials) {
    trial.there = trial.tos;
    trial.back = trial.tos;
  }
  return trials;
}

TEST(MarkSurvival, EveryCodePointOfSpillwayIsTried) {
  EXPECT_EQ(dscp_trials().size(), 10U);
  EXPECT_EQ(ecn_trials().size(), 3U);
  EXPECT_EQ(worst_of(check_dscp(survived(dscp_trials()))), Severity::kOk);
  EXPECT_EQ(worst_of(check_ecn(survived(ecn_trials()))), Severity::kOk);
}

TEST(MarkSurvival, EachRewrittenCodePointIsNamedWithItsDirection) {
  std::vector<MarkTrial> trials = survived(dscp_trials());
  trials[7].there = 0;           // priority 7: DSCP 41
  trials[0].back = 8 << 2;       // priority 0: DSCP 1
  trials[1].there = 9 << 2 | 3;  // only its ECN changed
  const Findings findings = check_dscp(trials);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].check, "dscp-there");
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  EXPECT_EQ(findings[0].finding, "DSCP 41 arrives as DSCP 0");
  EXPECT_NE(findings[0].remedy.find("trust DSCP"), std::string::npos);
  EXPECT_EQ(findings[1].check, "dscp-back");
  EXPECT_EQ(findings[1].finding, "DSCP 1 arrives as DSCP 8");
}

TEST(MarkSurvival, WhatNeverArrivesIsAnError) {
  std::vector<MarkTrial> trials = survived(dscp_trials());
  trials[8].back.reset();
  const Findings findings = check_dscp(trials);
  ASSERT_EQ(findings.size(), 3U);
  EXPECT_EQ(findings[2].check, "dscp-back");
  EXPECT_EQ(findings[2].severity, Severity::kError);
  EXPECT_EQ(findings[2].finding, "packets with DSCP 48 never arrive");
}

TEST(MarkSurvival, AMarkOnTheWayIsNotARewrite) {
  std::vector<MarkTrial> trials = survived(ecn_trials());
  trials[0].there = *trials[0].there | 3;  // ECT(0) met a full queue
  EXPECT_EQ(worst_of(check_ecn(trials)), Severity::kOk);
  trials[2].there = *trials[2].there & ~3;  // CE was cleared
  trials[1].back = (*trials[1].back & ~3) | 2;
  const Findings findings = check_ecn(trials);
  EXPECT_EQ(findings[0].finding, "CE arrives as Not-ECT");
  EXPECT_EQ(findings[1].finding, "ECT(1) arrives as ECT(0)");
}

// ------------------------------------------------------------------ trims

BurstOutcome burst(std::uint64_t sent, std::initializer_list<ArrivalKind> kinds) {
  BurstOutcome outcome{.sent = {.packets = sent, .payload_bytes = 1464}, .arrived = {}};
  outcome.arrived.watches = true;
  for (const ArrivalKind& kind : kinds) {
    outcome.arrived.kinds[outcome.arrived.kind_count++] = kind;
  }
  return outcome;
}

TEST(TrimSize, IsTheFrameThatIsLeft) {
  BurstOutcome outcome = burst(1000, {{1464, 1, 600}, {214, 48, 290}, {210, 48, 10}});
  const TrimOutcome trims = trims_of(outcome);
  EXPECT_EQ(trims.frame_bytes, 214U + 8 + 20 + 14);
  EXPECT_EQ(trims.smallest, 252U);
  EXPECT_EQ(trims.largest, 256U);
  EXPECT_EQ(trims.whole, 600U);
  EXPECT_EQ(trims.trimmed, 300U);
  EXPECT_EQ(trims.lost, 100U);
  EXPECT_EQ(trims.dscp, 48);
  EXPECT_EQ(worst_of(check_trims(outcome, std::nullopt)), Severity::kOk);
  outcome.ipv6 = true;
  EXPECT_EQ(trims_of(outcome).frame_bytes, 276U);
}

TEST(TrimSize, IsComparedWithWhatRanksAreTold) {
  const BurstOutcome outcome = burst(1000, {{1464, 1, 600}, {214, 48, 300}});
  const auto severity = [&](unsigned configured) {
    return worst_of(check_trims(outcome, configured));
  };
  EXPECT_EQ(severity(256), Severity::kOk);
  EXPECT_EQ(severity(252), Severity::kOk);  // one VLAN tag less
  EXPECT_EQ(severity(257), Severity::kError);
  EXPECT_EQ(severity(206), Severity::kWarning);
  EXPECT_EQ(severity(0), Severity::kWarning);
  EXPECT_EQ(check_trims(outcome, 1024)[1].remedy, "set SPILLWAY_TRIM_BYTES=256");
}

TEST(TrimSize, NothingTrimmedIsSaidToBeInconclusive) {
  const Findings whole = check_trims(burst(1000, {{1464, 1, 1000}}), 256);
  EXPECT_EQ(whole[0].severity, Severity::kNote);
  EXPECT_NE(whole[0].remedy.find("two or three hosts"), std::string::npos);
  const Findings lost = check_trims(burst(1000, {{1464, 1, 900}}), 256);
  EXPECT_NE(lost[0].finding.find("10.0 % of 1000"), std::string::npos);
}

TEST(TrimSize, StaleLengthsAreAnErrorThatNamesTheFix) {
  BurstOutcome outcome = burst(1000, {{1464, 1, 600}, {214, 48, 100}});
  outcome.arrived.stale = 300;
  outcome.arrived.stale_smallest = outcome.arrived.stale_largest = 256;
  outcome.arrived.interface = "eth2";
  outcome.arrived.host = "node7";
  const Finding finding = check_trims(outcome, std::nullopt).back();
  EXPECT_EQ(finding.severity, Severity::kError);
  EXPECT_EQ(finding.finding.substr(0, 30), "300 of 400 trimmed packets (25");
  EXPECT_EQ(finding.remedy, "spillway fixup attach --interface eth2 (on node7)");
  EXPECT_EQ(trims_of(outcome).lost, 0U);
  outcome.arrived = {};
  EXPECT_EQ(check_trims(outcome, std::nullopt).back().severity, Severity::kNote);
}

// ------------------------------------------------------------------ peers by name

TEST(PeerChecks, PeersAreFoundWithAndWithoutAPort) {
  const auto found = [](std::string_view text) { return resolve_peer(text).value().to_string(); };
  EXPECT_EQ(found("10.0.0.1:99"), "10.0.0.1:99");
  EXPECT_EQ(found("10.0.0.1"), "10.0.0.1:7078");
  EXPECT_EQ(found("[fd00::1]:99"), "[fd00::1]:99");
  EXPECT_EQ(found("fd00::1"), "[fd00::1]:7078");
  EXPECT_FALSE(resolve_peer("").ok());
  EXPECT_FALSE(resolve_peer("127.0.0.1:99999").ok());
}

}  // namespace

}  // namespace spillway::doctor
