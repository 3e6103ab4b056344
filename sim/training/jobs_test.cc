// SPDX-License-Identifier: Apache-2.0
#include "sim/training/jobs.h"

#include <gtest/gtest.h>

#include <string>

namespace spillway::sim {
namespace {

constexpr const char* kPlenty = "aggregate slots=8192\n";

scenario::Scenario parse(const std::string& text) {
  return scenario::parse_scenario(text).value();
}

std::string one_switch(int hosts) {
  return "topology one-switch rate=10gbit hosts=" + std::to_string(hosts) + "\n";
}

TrainingsResult train(const std::string& text) {
  const scenario::Scenario scenario = parse(text);
  base::Result<TrainingsResult> result = run_trainings(scenario);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return std::move(result).value();
}

std::string error_of(const std::string& text) {
  const base::Result<TrainingsResult> result = run_trainings(parse(text));
  return result.ok() ? "" : result.status().message();
}

constexpr const char* kTwoJobs =
    "training name=vgg workers=4 servers=1 bytes=64k,256k,512k forward=50us backward=100us "
    "jitter=20% steps=3\n"
    "training name=resnet workers=4 servers=1 layers=6 bytes=64k forward=200us backward=400us "
    "jitter=20% steps=3 start=300us\n";

TEST(TrainingJobs, WhereComputationIsAllItIsTheTime) {
  const TrainingsResult result =
      train(one_switch(5) + kPlenty +
            "training workers=4 servers=1 layers=4 bytes=4k forward=2ms backward=3ms steps=5\n");
  ASSERT_EQ(result.jobs[0].end, TrainingEnd::kDone);
  EXPECT_EQ(result.jobs[0].costs.computation, base::milliseconds(20));
  EXPECT_GE(result.jobs[0].completion, base::milliseconds(100));
  EXPECT_LT(result.jobs[0].completion, base::milliseconds(105));
}

TEST(TrainingJobs, WhereCommunicationIsAllTheLinkIsTheBound) {
  const TrainingsResult result =
      train(one_switch(5) + kPlenty +
            "training workers=4 servers=1 layers=4 bytes=1MB forward=10us backward=10us steps=4\n");
  const TrainingResult& job = result.jobs[0];
  ASSERT_EQ(job.end, TrainingEnd::kDone);
  const base::Duration bound = job.costs.communication * 4;
  EXPECT_GE(job.completion, bound);
  EXPECT_LT(job.completion, bound * 3);
  EXPECT_EQ(job.reduce.count, 4U * 4U * 4U);
}

TEST(TrainingJobs, WithoutServersWorkersOwnTheSums) {
  const TrainingsResult result =
      train(one_switch(4) + kPlenty + "training workers=4 layers=2 bytes=256k steps=2 code=thc\n");
  EXPECT_EQ(result.jobs[0].end, TrainingEnd::kDone);
  EXPECT_GT(result.network.adders[0].counters.outcomes[SPILLWAY_SUM_DID_EMIT], 0U);
}

TEST(TrainingJobs, TheSameSeedGivesTheSameResult) {
  for (const char* policy : {"static pools=2", "first-come", "preemptive"}) {
    const std::string text =
        one_switch(10) + "aggregate slots=32 policy=" + policy + "\n" + kTwoJobs;
    const TrainingsResult first = train("seed 3\n" + text);
    const TrainingsResult again = train("seed 3\n" + text);
    const TrainingsResult other = train("seed 4\n" + text);
    for (std::size_t job = 0; job < 2; ++job) {
      ASSERT_EQ(first.jobs[job].end, TrainingEnd::kDone) << policy;
      EXPECT_EQ(first.jobs[job].completion, again.jobs[job].completion) << policy;
    }
    EXPECT_EQ(first.events, again.events) << policy;
    EXPECT_NE(first.mean_completion(), other.mean_completion()) << policy;
  }
}

TEST(TrainingJobs, ScarceSlotsTurnPartsAway) {
  const auto collisions = [](const std::string& slots) {
    scenario::Scenario scenario =
        parse(one_switch(10) + "aggregate policy=first-come slots=" + slots + "\n" + kTwoJobs);
    for (scenario::Training& training : scenario.trainings) {
      training.scale = scenario::ScaleRule::kPredicted;
    }
    const TrainingsResult result = run_trainings(scenario).value();
    EXPECT_EQ(result.jobs[0].end, TrainingEnd::kDone);
    EXPECT_EQ(result.jobs[1].end, TrainingEnd::kDone);
    return result.network.adders[0].counters.outcomes[SPILLWAY_SUM_DID_COLLISION];
  };
  EXPECT_GT(collisions("4"), 10 * collisions("8192"));
}

TEST(TrainingJobs, ADeadWorkerEndsItsJobAlone) {
  const TrainingsResult result = train(one_switch(10) + kPlenty + kTwoJobs +
                                       "limit 60s\nfault kind=host-death host=1 from=400us\n");
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.jobs[0].end, TrainingEnd::kFailed);
  EXPECT_NE(result.jobs[0].failure.message().find("rank 1"), std::string::npos)
      << result.jobs[0].failure.message();
  EXPECT_EQ(result.jobs[1].end, TrainingEnd::kDone);
}

TEST(TrainingJobs, SaysWhatDoesNotFit) {
  EXPECT_NE(error_of(one_switch(4)).find("no 'training'"), std::string::npos);
  EXPECT_NE(error_of(one_switch(9) + kTwoJobs).find("need 10 hosts, there are 9"),
            std::string::npos);
  EXPECT_NE(error_of(one_switch(10) + kTwoJobs + "job pattern=incast\n").find("do not go together"),
            std::string::npos);
}

}  // namespace
}  // namespace spillway::sim
