// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/soak.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "sim/soak/checks.h"

namespace spillway::sim {
namespace {

TEST(Soak, WorldsHoldWhatMustHold) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const SoakResult result = run_soak_world(seed);
    EXPECT_TRUE(result.failures.empty()) << "seed " << seed << ": " << result.failures.front();
    EXPECT_GT(result.record.messages.size(), 0U);
  }
}

TEST(Soak, AWorldRunsTheSameAgainAndOthersDoNot) {
  const std::uint64_t digest = run_soak_world(7).record.digest;
  EXPECT_EQ(run_soak_world(7).record.digest, digest);
  EXPECT_NE(run_soak_world(8).record.digest, digest);
}

TEST(Soak, AWorldIsAScenarioThatCanBeReadAgain) {
  const SoakWorld world = draw_soak_world(3);
  EXPECT_EQ(world.text, draw_soak_world(3).text);
  EXPECT_TRUE(scenario::parse_scenario(describe(world)).ok());
}

TEST(Soak, AttackersComeThroughAndForgeriesOfEveryKindAreRefused) {
  std::uint64_t arrived = 0;
  std::uint64_t repeats = 0;
  std::array<std::uint64_t, kAttacks> refused{};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const SoakRecord record = run_soak_world(seed).record;
    arrived += record.attacks_arrived;
    repeats += record.repeats_counted;
    std::ranges::transform(refused, record.refused, refused.begin(), std::plus<>());
  }
  EXPECT_GT(repeats, 10U);
  EXPECT_GT(arrived, std::accumulate(refused.begin(), refused.end(), repeats / 2));
  for (std::size_t attack = 0; attack < kAttacks; ++attack) {
    EXPECT_GT(refused[attack], 3U) << "attack " << attack;
  }
}

// A world with one message that ended well, for tests to modify.
class SoakChecks : public ::testing::Test {
 protected:
  SoakChecks() {
    scenario::Job job;
    job.spillway.exchange.peer_timeout = base::milliseconds(10);
    world_.scenario.jobs = {job};
    world_.message_limit = base::seconds(1);
    MessageRecord message;
    message.flow.to = 1;
    message.flow.loss.loss_bound_ppm = 100'000;
    message.packets = 20;
    message.importance.assign(20, SPILLWAY_IMPORTANCE_MARKED);
    message.transmitted.assign(20, true);
    message.expected = message.sent = true;
    message.received = transport::ReceiveReport{.id = {},
                                                .outcome = transport::Outcome::kEverything,
                                                .packets = 20,
                                                .delivered = 20,
                                                .whole = 20,
                                                .planes = std::vector<std::uint8_t>(20, 16)};
    message.reported = transport::SendReport{.id = {}, .to = 1, .packets = 20};
    record_.messages = {message};
    record_.endpoints = {{.counters = {},
                          .control_arrived = 5,
                          .memory_peak = 100,
                          .memory_bound = 100,
                          .is_idle = true}};
  }

  MessageRecord& message() { return record_.messages.front(); }
  void lose(std::uint32_t packet) {
    message().received->planes[packet] = 0;
    --message().received->delivered;
  }
  // The only failure; empty if there is none.
  std::string verdict() const {
    const std::vector<std::string> failures = check_soak(world_, record_);
    EXPECT_LE(failures.size(), 1U) << failures.back();
    return failures.empty() ? "" : failures.front();
  }
  static bool says(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  }

  SoakWorld world_;
  SoakRecord record_;
};

TEST_F(SoakChecks, SayNothingWhenAllIsWell) {
  EXPECT_EQ(verdict(), "");
  message().received->outcome = transport::Outcome::kWithinBudget;
  lose(3);
  lose(4);
  EXPECT_EQ(verdict(), "");  // two of twenty: exactly the bound
}

TEST_F(SoakChecks, SeeMoreLossThanTheBound) {
  message().received->outcome = transport::Outcome::kWithinBudget;
  lose(3);
  lose(4);
  lose(5);
  EXPECT_TRUE(says(verdict(), "3 are missing where 2 may be")) << verdict();
}

TEST_F(SoakChecks, SeeAMissingPacketInEverything) {
  lose(3);
  EXPECT_TRUE(says(verdict(), "1 are missing")) << verdict();
}

TEST_F(SoakChecks, SeeARequiredPacketThatIsMissing) {
  message().received->outcome = transport::Outcome::kWithinBudget;
  message().importance[3] = SPILLWAY_IMPORTANCE_REQUIRED;
  lose(3);
  EXPECT_TRUE(says(verdict(), "1 required packets are missing")) << verdict();
}

TEST_F(SoakChecks, CountPacketsBelowMinPlanesAsMissing) {
  message().flow.loss.min_planes = 8;
  message().received->planes[0] = 7;
  EXPECT_TRUE(says(check_soak(world_, record_).front(), "19 packets arrived"));
}

TEST_F(SoakChecks, SeePacketsThatNobodySent) {
  message().transmitted[9] = false;
  EXPECT_TRUE(says(verdict(), "packet 9 arrived, but was never sent")) << verdict();
}

TEST_F(SoakChecks, SeeTensorsThatAreWrongOrOverrun) {
  message().is_exact = false;
  EXPECT_TRUE(says(verdict(), "not what the planes")) << verdict();
  message().is_exact = true;
  message().guards_intact = false;
  EXPECT_TRUE(says(verdict(), "beside the tensor")) << verdict();
}

TEST_F(SoakChecks, SeeMessagesThatEndLateOrNever) {
  message().received_at = base::Instant(base::seconds(2));
  EXPECT_TRUE(says(verdict(), "receiver only after 2000 ms")) << verdict();
  message().received_at = {};
  message().reported.reset();
  EXPECT_TRUE(says(verdict(), "never ended at its sender")) << verdict();
  world_.scenario.faults = {{.kind = scenario::FaultKind::kHostDeath, .host = 0}};
  EXPECT_EQ(verdict(), "");  // dead hosts need not end anything
}

TEST_F(SoakChecks, SeeDeadlinesThatWereNotKept) {
  message().received->outcome = transport::Outcome::kDeadline;
  EXPECT_TRUE(says(verdict(), "has none")) << verdict();
  message().deadline = base::milliseconds(5);
  EXPECT_TRUE(says(verdict(), "deadline of 5 ms, but after 0 ms")) << verdict();
  message().received_at = base::Instant(base::milliseconds(5));
  EXPECT_EQ(verdict(), "");
  message().received_at = base::Instant(base::milliseconds(8));
  EXPECT_TRUE(says(verdict(), "ended 8 ms after it began")) << verdict();
}

TEST_F(SoakChecks, SeeTheLivingGivenUp) {
  DeathRecord death{.host = 0,
                    .peer = 1,
                    .at = base::Instant(base::milliseconds(20)),
                    .silence = base::milliseconds(9),
                    .unattempted = base::milliseconds(1),
                    .unanswered = base::milliseconds(1)};
  record_.deaths = {death};
  EXPECT_TRUE(says(verdict(), "before the timeout of 10 ms")) << verdict();
  record_.deaths.front().silence = base::milliseconds(11);
  EXPECT_EQ(verdict(), "");
  record_.deaths.front().lost_tries = 100;
  EXPECT_TRUE(says(verdict(), "100 packets that no fault explains")) << verdict();
  record_.deaths.front().unattempted = base::milliseconds(11);
  EXPECT_TRUE(says(verdict(), "has said nothing for 11 ms")) << verdict();
  world_.scenario.faults = {{.kind = scenario::FaultKind::kHostDeath,
                             .host = 1,
                             .from = base::Instant(base::milliseconds(3))}};
  EXPECT_EQ(verdict(), "");  // it is dead
}

TEST_F(SoakChecks, SeeBoundsThatWereBroken) {
  record_.endpoints.front().memory_peak = 101;
  EXPECT_TRUE(says(verdict(), "101 bytes of memory")) << verdict();
  record_.endpoints.front().memory_peak = 0;
  record_.endpoints.front().counters.control_taken = 6;
  EXPECT_TRUE(says(verdict(), "took 6 control packets, but only 5 came")) << verdict();
  record_.endpoints.front().counters.control_taken = 5;
  record_.endpoints.front().is_idle = false;
  EXPECT_TRUE(says(verdict(), "still waits")) << verdict();
}

TEST_F(SoakChecks, SeePacketsThatAreNeverReleased) {
  record_.packets_left = 2;
  EXPECT_TRUE(says(verdict(), "2 packets were never released")) << verdict();
  record_.others_go_on = true;
  EXPECT_EQ(verdict(), "");
}

TEST_F(SoakChecks, PassOnWhatWasSeenOnTheSpot) {
  record_.wrongs = {"a forged packet was not refused"};
  EXPECT_EQ(verdict(), "a forged packet was not refused");
}

}  // namespace
}  // namespace spillway::sim
