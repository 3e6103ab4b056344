// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "sim/training/job.h"

namespace spillway::sim {
namespace {

// ------------------------------------------------------------------ a job

constexpr StepCosts kHeavy{.computation = base::milliseconds(1),
                           .communication = base::milliseconds(4)};
constexpr StepCosts kLight{.computation = base::milliseconds(4),
                           .communication = base::milliseconds(1)};

TEST(Urgency, FrontLayersShortJobsAndTheNetworksJobsComeFirst) {
  EXPECT_GT(esa_urgency(kHeavy, 10, 0, 8), esa_urgency(kHeavy, 10, 7, 8));
  EXPECT_GT(esa_urgency(kHeavy, 2, 3, 8), esa_urgency(kHeavy, 10, 3, 8));
  EXPECT_GT(esa_urgency(kHeavy, 10, 3, 8), esa_urgency(kLight, 10, 3, 8));
}

TEST(Urgency, ADoublingIsSevenSteps) {
  EXPECT_EQ(quantised_urgency(2.0) - quantised_urgency(1.0), 7);
  EXPECT_EQ(quantised_urgency(1024.0) - quantised_urgency(1.0), 70);
}

TEST(Urgency, EndsAreEnds) {
  EXPECT_EQ(quantised_urgency(1e30), 255);
  EXPECT_EQ(quantised_urgency(1e-30), 1);
  EXPECT_EQ(quantised_urgency(0.0), 1);
  EXPECT_EQ(esa_urgency({}, 1, 0, 1), 255);
}

TEST(Urgency, LayersShareThePriorities) {
  EXPECT_EQ(layer_priority(0, 3), 7);
  EXPECT_EQ(layer_priority(2, 3), 2);
  EXPECT_EQ(layer_priority(99, 100), 0);
  EXPECT_EQ(layer_priority(0, 1), 7);
}

scenario::Training three_layers(std::uint32_t steps) {
  scenario::Training job;
  job.steps = steps;
  for (int layer = 1; layer <= 3; ++layer) {
    job.layers.push_back({.bytes = base::bytes(1000),
                          .forward = base::microseconds(layer),
                          .backward = base::microseconds(10 * layer)});
  }
  return job;
}

// A worker and its requests: "2" computes for 2 us, "R1.0" all-reduces layer 0 of step 1.
class WorkerTest : public testing::Test {
 protected:
  WorkerTest()
      : job_(three_layers(2)),
        worker_(job_, 1,
                {.compute =
                     [this](base::Duration duration) {
                       said_ += fmt::format(" {}", duration.count() / 1000);
                     },
                 .reduce =
                     [this](std::uint32_t step, std::uint32_t layer) {
                       said_ += fmt::format(" R{}.{}", step, layer);
                     }}) {}

  void compute(int times) {
    for (int i = 0; i < times; ++i) {
      worker_.on_computed();
    }
  }

  scenario::Training job_;
  std::string said_;
  TrainingWorker worker_;
};

TEST_F(WorkerTest, GoesForwardAndBack) {
  worker_.start();
  compute(5);
  EXPECT_EQ(said_, " 1 2 3 30 R0.2 20 R0.1 10");
  EXPECT_EQ(worker_.stage(), WorkerStage::kBackward);
}

TEST_F(WorkerTest, ALayerWaitsForItsOwnReduceAlone) {
  worker_.start();
  compute(6);
  EXPECT_EQ(worker_.stage(), WorkerStage::kWaiting);
  worker_.on_reduced(2);
  EXPECT_EQ(worker_.stage(), WorkerStage::kWaiting);
  worker_.on_reduced(0);
  EXPECT_EQ(worker_.stage(), WorkerStage::kForward);
  EXPECT_EQ(worker_.step(), 1U);
  compute(1);
  EXPECT_EQ(worker_.stage(), WorkerStage::kWaiting);
  worker_.on_reduced(1);
  EXPECT_EQ(worker_.stage(), WorkerStage::kForward);
}

TEST_F(WorkerTest, IsDoneWithItsLastReduce) {
  worker_.start();
  compute(6);
  for (const std::uint32_t layer : {2U, 1U, 0U}) {
    worker_.on_reduced(layer);
  }
  compute(6);
  EXPECT_EQ(worker_.stage(), WorkerStage::kDraining);
  worker_.on_reduced(0);
  worker_.on_reduced(2);
  EXPECT_EQ(worker_.stage(), WorkerStage::kDraining);
  worker_.on_reduced(1);
  EXPECT_EQ(worker_.stage(), WorkerStage::kDone);
}

TEST(Worker, JitterMakesAWholeStepSlower) {
  scenario::Training job = three_layers(1);
  job.jitter = 0.5;
  std::vector<base::Duration> took;
  TrainingWorker worker(job, 7,
                        {.compute = [&took](base::Duration duration) { took.push_back(duration); },
                         .reduce = [](std::uint32_t, std::uint32_t) {}});
  worker.start();
  worker.on_computed();
  EXPECT_GT(took[0], base::microseconds(1));
  EXPECT_LT(took[0], base::nanoseconds(1500));
  EXPECT_NEAR(static_cast<double>(took[1].count()), 2.0 * static_cast<double>(took[0].count()),
              1.0);
}

// ------------------------------------------------------------------ all jobs of a scenario

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

std::string training_error_of(const std::string& text) {
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
  const TrainingsResult result = train(
      one_switch(4) + kPlenty + "training workers=4 layers=2 bytes=256k steps=2 codec=levels\n");
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
  EXPECT_NE(training_error_of(one_switch(4)).find("no 'training'"), std::string::npos);
  EXPECT_NE(training_error_of(one_switch(9) + kTwoJobs).find("need 10 hosts, there are 9"),
            std::string::npos);
  EXPECT_NE(training_error_of(one_switch(10) + kTwoJobs + "job pattern=incast\n")
                .find("do not go together"),
            std::string::npos);
}

}  // namespace
}  // namespace spillway::sim
