// SPDX-License-Identifier: Apache-2.0
#include "sim/training/urgency.h"

#include <gtest/gtest.h>

namespace spillway::sim {
namespace {

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

}  // namespace
}  // namespace spillway::sim
