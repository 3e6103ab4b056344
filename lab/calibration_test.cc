// SPDX-License-Identifier: Apache-2.0
#include "lab/calibration.h"

#include <gtest/gtest.h>

namespace spillway::lab {
namespace {

Pace pace_late_by(double mean_us) {
  return {.mean_late_us = mean_us, .limit_us = 200};
}

TEST(Calibration, ANetworkThatIsOnTimeStaysAsItIs) {
  EXPECT_EQ(next_dilation(pace_late_by(20), 1.0, 1), 1);
  EXPECT_EQ(next_dilation(pace_late_by(20), 1.0, 8), 8);
}

TEST(Calibration, ALateOneIsSlowedDown) {
  EXPECT_EQ(next_dilation(pace_late_by(300), 1.0, 1), 2);
  EXPECT_EQ(next_dilation(pace_late_by(300), 1.0, 2), 4);
}

TEST(Calibration, ATrialLeavesRoomForWhatItDoesNotForesee) {
  EXPECT_EQ(next_dilation(pace_late_by(100), 1.0, 1), 2);
}

TEST(Calibration, FramesThatTheEmulationLostAreTooMany) {
  Pace pace = pace_late_by(10);
  pace.missed = 1;
  EXPECT_EQ(next_dilation(pace, 1.0, 1), 2);
}

TEST(Calibration, ATrialInWhichHostsSentTooLittleCountsAsLate) {
  EXPECT_EQ(next_dilation(pace_late_by(20), 0.89, 1), 2);
  EXPECT_EQ(next_dilation(pace_late_by(20), 0.91, 1), 1);
}

TEST(Calibration, TheHostThatSentLeastCounts) {
  const char* printed = "[1] of the load was sent: 0.930\n[0] of the load was sent: 0.700\n";
  EXPECT_EQ(least_share_sent(printed, 2), 0.7);
  EXPECT_EQ(least_share_sent(printed, 3), 0.0);  // one said nothing
  EXPECT_EQ(least_share_sent("[0] of the load was sent: 1.010\n", 1), 1.0);
  EXPECT_EQ(least_share_sent("", 1), 0.0);
}

TEST(Calibration, ThereIsAnEnd) {
  EXPECT_EQ(next_dilation(pace_late_by(1e6), 1.0, kMaxDilation), std::nullopt);
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

TEST(Calibration, ALateRunIsRepeatedOnceAndThenFails) {
  EXPECT_EQ(after_run({.was_late = false}), AfterRun::kKeep);
  EXPECT_EQ(after_run({.was_late = false, .can_be_slower = false}), AfterRun::kKeep);
  EXPECT_EQ(after_run({.was_late = true}), AfterRun::kRunAgainSlower);
  EXPECT_EQ(after_run({.was_late = true, .can_be_slower = false}), AfterRun::kFail);
}

TEST(Calibration, ALateRunCountsIfTheLabDidNotChooseTheRate) {
  for (const bool can_be_slower : {true, false}) {
    EndedRun late = {.was_late = true, .can_be_slower = can_be_slower};
    for (bool EndedRun::*const reason :
         {&EndedRun::rate_is_given, &EndedRun::allows_late, &EndedRun::is_staged}) {
      late.*reason = true;
      EXPECT_EQ(after_run(late), AfterRun::kKeep);
      late.*reason = false;
    }
    late.could_be_tried = false;
    EXPECT_EQ(after_run(late), AfterRun::kKeep);
  }
}

TEST(Calibration, RatesAreSaidAsTheOptionTakesThem) {
  EXPECT_EQ(rate_option(base::gigabits_per_second(1)), "1000mbit");
  EXPECT_EQ(rate_option(base::bits_per_second(62'500'000)), "62500kbit");
}

}  // namespace
}  // namespace spillway::lab
