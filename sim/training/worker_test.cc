// SPDX-License-Identifier: Apache-2.0
#include "sim/training/worker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace spillway::sim {
namespace {

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

}  // namespace
}  // namespace spillway::sim
