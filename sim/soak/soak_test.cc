// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/soak.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <set>

#include "sim/soak/code_soak.h"
#include "sim/soak/sum_soak.h"

namespace spillway::sim {
namespace {

// ------------------------------------------------------------------ messages

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
    repeats += record.duplicates_counted;
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
  record_.background_running = true;
  EXPECT_EQ(verdict(), "");
}

TEST_F(SoakChecks, PassOnWhatWasSeenOnTheSpot) {
  record_.violations = {"a forged packet was not refused"};
  EXPECT_EQ(verdict(), "a forged packet was not refused");
}

// ------------------------------------------------------------------ sums

TEST(SumSoak, WorldsHoldWhatMustHold) {
  spillway_sum_counters switches = {};
  std::uint64_t refused = 0;
  std::uint64_t missing = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const SumSoakResult result = run_sum_world(seed);
    EXPECT_TRUE(result.failures.empty()) << "seed " << seed << ": " << result.failures.front();
    for (unsigned i = 0; i < SPILLWAY_SUM_OUTCOMES; ++i) {
      switches.outcomes[i] += result.record.switches.outcomes[i];
    }
    switches.copies += result.record.switches.copies;
    refused += result.record.refused;
    missing += result.record.missing;
  }
  for (const spillway_sum_outcome outcome :
       {SPILLWAY_SUM_DID_CLAIM, SPILLWAY_SUM_DID_ADD, SPILLWAY_SUM_DID_EMIT,
        SPILLWAY_SUM_DID_DUPLICATE, SPILLWAY_SUM_DID_COLLISION, SPILLWAY_SUM_DID_EVICTION,
        SPILLWAY_SUM_DID_FLUSH, SPILLWAY_SUM_DID_NOT_HELD, SPILLWAY_SUM_DID_RESULT}) {
    EXPECT_GT(switches.outcomes[outcome], 0U) << sum_outcome_name(outcome);
  }
  EXPECT_GT(switches.copies, 0U);
  EXPECT_GT(refused, 0U);
  EXPECT_GT(missing, 0U);
}

TEST(SumSoak, AWorldRunsTheSameAgainAndOthersDoNot) {
  const std::uint64_t digest = run_sum_world(3).record.digest;
  EXPECT_EQ(run_sum_world(3).record.digest, digest);
  EXPECT_NE(run_sum_world(4).record.digest, digest);
}

TEST(SumSoak, AWorldIsAScenarioThatCanBeReadAgain) {
  EXPECT_TRUE(scenario::parse_scenario(describe(draw_sum_world(5))).ok());
}

// With slots for all and no loss, every chunk leaves the switch once, complete, and its result
// enters the switch once, however late ranks are.
TEST(SumSoak, LateRanksCostNoSlotItsSum) {
  for (const std::uint16_t ranks : {4, 8}) {
    SumWorld world;
    world.seed = ranks;
    world.scenario =
        scenario::parse_scenario("topology one-switch hosts=" + std::to_string(ranks) +
                                 " rate=1gbit delay=10us\naggregate slots=1048576 lease=10s\n")
            .value();
    SumJobPlan job;
    job.number = 1;
    job.ranks = ranks;
    job.operations = 4;
    job.owners = {0, 1, 2, 3};
    job.chunks = 60;
    job.gap = base::milliseconds(20);
    job.jitter = base::milliseconds(100);
    world.jobs = {job};
    world.limit = base::Instant(base::seconds(10));
    const SumSoakResult result = run_sum_world(world);
    EXPECT_TRUE(result.failures.empty()) << result.failures.front();
    const auto& outcomes = result.record.switches.outcomes;
    constexpr std::uint64_t kChunks = 4ULL * 4 * 60;
    EXPECT_EQ(outcomes[SPILLWAY_SUM_DID_CLAIM], kChunks);
    EXPECT_EQ(outcomes[SPILLWAY_SUM_DID_EMIT], kChunks);
    EXPECT_EQ(outcomes[SPILLWAY_SUM_DID_FLUSH] + outcomes[SPILLWAY_SUM_DID_NOT_HELD], 0U);
    EXPECT_LE(outcomes[SPILLWAY_SUM_DID_RESULT], kChunks * 101 / 100);
    EXPECT_EQ(result.record.switches.copies, kChunks * (ranks - 1U));
  }
}

// A sum of two ranks that ended well, for tests to modify.
class SumChecks : public testing::Test {
 protected:
  SumChecks() {
    SumJobPlan job;
    job.number = 1;
    job.ranks = 2;
    job.operations = 1;
    job.owners = {0};
    job.chunks = 1;
    world_.jobs = {job};
    for (std::uint16_t rank = 0; rank < 2; ++rank) {
      SumRecord& sum = record_.sums.emplace_back();
      sum.rank = rank;
      sum.is_over = true;
      sum.ranks = {wire::RankSet::below(2)};
      for (std::size_t i = 0; i < SPILLWAY_SUM_WORDS; ++i) {
        sum.words.push_back(sum_part(job, 0, 0, 0, i) + sum_part(job, 0, 0, 1, i));
      }
    }
  }

  std::string check() const {
    const std::vector<std::string> failures = check_sums(world_, record_);
    return failures.empty() ? "" : failures.front();
  }

  SumWorld world_;
  SumSoakRecord record_;
};

TEST_F(SumChecks, ARightSumPasses) {
  EXPECT_EQ(check(), "");
}

TEST_F(SumChecks, AWordThatIsOffByOneIsSeen) {
  ++record_.sums[1].words[167];
  EXPECT_NE(check().find("is not the sum"), std::string::npos);
}

TEST_F(SumChecks, APartThatCountsTwiceIsSeen) {
  for (std::size_t i = 0; i < SPILLWAY_SUM_WORDS; ++i) {
    record_.sums[0].words[i] += sum_part(world_.jobs[0], 0, 0, 1, i);
  }
  EXPECT_NE(check().find("is not the sum"), std::string::npos);
}

TEST_F(SumChecks, APartThatIsNotReportedMissingIsSeen) {
  record_.sums[1].ranks[0].erase(1);
  EXPECT_NE(check().find("is not the sum"), std::string::npos);
}

TEST_F(SumChecks, MoreThanTheBoundForgivesIsSeen) {
  for (SumRecord& sum : record_.sums) {
    sum.ranks[0].erase(1);
    for (std::size_t i = 0; i < SPILLWAY_SUM_WORDS; ++i) {
      sum.words[i] = sum_part(world_.jobs[0], 0, 0, 0, i);
    }
  }
  EXPECT_NE(check().find("lacks 1 parts, where 0 may"), std::string::npos);
  world_.jobs[0].loss_bound_ppm = 1'000'000;
  EXPECT_EQ(check(), "");
}

TEST_F(SumChecks, ASumWithoutEndAndPacketsThatStayAreSeen) {
  record_.sums[1].is_over = false;
  EXPECT_NE(check().find("was not over"), std::string::npos);
  record_.sums[1].is_over = true;
  record_.packets_left = 1;
  EXPECT_NE(check().find("left on their way"), std::string::npos);
}

// ------------------------------------------------------------------ codecs

TEST(CodeSoak, WorldsHoldWhatMustHold) {
  std::set<collective::Codec> codes;
  std::uint64_t tables = 0;
  std::uint64_t given_up = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const CodeSoakResult result = run_code_world(seed);
    EXPECT_TRUE(result.failures.empty()) << "seed " << seed << ": " << result.failures.front();
    for (const CodeCall& call : result.world.calls) {
      if (call.tolerance) {
        codes.insert(call.tolerance->codec);
      }
    }
    tables += result.record.tables;
    given_up += result.record.given_up;
  }
  EXPECT_EQ(codes.size(), collective::kCodecs);
  EXPECT_GT(tables, 0U);
  EXPECT_GT(given_up, 0U);
}

TEST(CodeSoak, AWorldRunsTheSameAgainAndOthersDoNot) {
  const std::uint64_t digest = run_code_world(3).record.digest;
  EXPECT_EQ(run_code_world(3).record.digest, digest);
  EXPECT_NE(run_code_world(4).record.digest, digest);
}

TEST(CodeSoak, TheJudgeSeesAWrongBitAndAWrongSum) {
  CodeSoakResult result = run_code_world(3);
  ASSERT_TRUE(result.failures.empty());
  for (CodeRecord& call : result.record.calls) {
    call.output[0] += call.rank == 0 ? 1'000.0F : 0.0F;
  }
  EXPECT_GE(check_codes(result.world, result.record).size(), result.world.calls.size());
}

}  // namespace
}  // namespace spillway::sim
