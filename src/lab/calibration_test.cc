// SPDX-License-Identifier: Apache-2.0
#include "lab/calibration.h"

#include <gtest/gtest.h>

namespace spillway::lab {
namespace {

Pace pace_late_by(double mean_us) {
  return {.mean_late_us = mean_us, .limit_us = 200};
}

TEST(Calibration, ANetworkThatIsOnTimeStaysAsItIs) {
  EXPECT_EQ(next_dilation(pace_late_by(20), 1), 1);
  EXPECT_EQ(next_dilation(pace_late_by(20), 8), 8);
}

TEST(Calibration, ALateOneIsSlowedDown) {
  EXPECT_EQ(next_dilation(pace_late_by(300), 1), 2);
  EXPECT_EQ(next_dilation(pace_late_by(300), 2), 4);
}

TEST(Calibration, ATrialLeavesRoomForWhatItDoesNotForesee) {
  EXPECT_EQ(next_dilation(pace_late_by(100), 1), 2);
}

TEST(Calibration, FramesThatTheEmulationLostAreTooMany) {
  Pace pace = pace_late_by(10);
  pace.missed = 1;
  EXPECT_EQ(next_dilation(pace, 1), 2);
}

TEST(Calibration, ThereIsAnEnd) {
  EXPECT_EQ(next_dilation(pace_late_by(1e6), kMaxDilation), std::nullopt);
}

TEST(Calibration, AfterALateRunLatenessAsLongWouldBeBearable) {
  EXPECT_EQ(slowdown_after(pace_late_by(250)), 2);
  EXPECT_EQ(slowdown_after(pace_late_by(500)), 4);
  EXPECT_EQ(slowdown_after(pace_late_by(1e6)), kMaxSlowdown);
  Pace lossy = pace_late_by(10);
  lossy.missed = 1;
  EXPECT_EQ(slowdown_after(lossy), 4);
}

TEST(Calibration, ALateRunIsToldTheRateToGive) {
  scenario::Scenario scenario = scenario::parse_scenario("topology one-switch rate=1gbit").value();
  EXPECT_EQ(remedy_after(scenario, pace_late_by(250)), "give --rate 500mbit");
  EXPECT_EQ(remedy_after(scenario, pace_late_by(1e6)), "give --rate 125mbit");
  scenario.topology.kind = scenario::TopologyKind::kFile;
  EXPECT_EQ(remedy_after(scenario, pace_late_by(500)),
            "give the links of its topology file 4 times lower rates and 4 times longer delays");
}

TEST(Calibration, RatesAreSaidAsTheOptionTakesThem) {
  EXPECT_EQ(rate_option(base::gigabits_per_second(1)), "1000mbit");
  EXPECT_EQ(rate_option(base::bits_per_second(62'500'000)), "62500kbit");
}

}  // namespace
}  // namespace spillway::lab
