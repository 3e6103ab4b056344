// SPDX-License-Identifier: Apache-2.0
#include "lab/pace.h"

#include <gtest/gtest.h>

namespace spillway::lab {
namespace {

Pace pace(base::Duration delay, double mean_late_us, std::uint64_t missed = 0, double stolen = 0) {
  const scenario::Topology topology = scenario::one_switch({.hosts = 3, .delay = delay}).value();
  fabric::FabricSnapshot fabric;
  fabric.mean_late_us = mean_late_us;
  fabric.p99_late_us = 4 * mean_late_us;
  fabric.missed_in = missed;
  return pace_of(topology, fabric, stolen);
}

TEST(Pace, AFabricThatKeepsUpSaysNothing) {
  EXPECT_TRUE(pace(base::microseconds(10), 49.0).kept_up());
  EXPECT_EQ(pace_sentence(pace(base::microseconds(10), 49.0)), "");
  EXPECT_TRUE(pace(base::microseconds(10), 0.0).kept_up());  // in the kernel
}

TEST(Pace, OneThatFellBehindSaysHowFarAndTheRemedy) {
  Pace late = pace(base::microseconds(10), 300.0);
  EXPECT_EQ(pace_sentence(late),
            "the emulated fabric fell behind: frames left 300 us late on average, 1200 us at p99 "
            "(up to 50 on average is bearable)");
  late.remedy = "give --rate 125mbit";
  EXPECT_TRUE(pace_sentence(late).ends_with("is bearable); give --rate 125mbit"));
}

TEST(Pace, WhereHostsAreFarApartMoreIsBearable) {
  EXPECT_TRUE(pace(base::milliseconds(10), 1'999.0).kept_up());
  EXPECT_FALSE(pace(base::milliseconds(10), 2'001.0).kept_up());
}

TEST(Pace, AFabricThatLosesFramesItselfDidNotKeepUp) {
  EXPECT_FALSE(pace(base::microseconds(10), 1.0, 7).kept_up());
  EXPECT_NE(pace_sentence(pace(base::microseconds(10), 1.0, 7)).find("lost 7 itself"),
            std::string::npos);
}

TEST(Pace, AMachineThatWasNotThereMeasuredNothing) {
  const Pace robbed = pace(base::microseconds(10), 1.0, 0, 0.21);
  EXPECT_FALSE(robbed.kept_up());
  EXPECT_NE(pace_sentence(robbed).find("took away 21 %"), std::string::npos);
  EXPECT_TRUE(pace(base::microseconds(10), 1.0, 0, kMaxStolen).kept_up());
}

TEST(ProcessorTimes, AreThoseOfAllProcessorsTogether) {
  const ProcessorTimes before =
      parse_processor_times("cpu  100 10 50 800 5 0 5 30 7 7\ncpu0 1 1 1 1 1 1 1 1\n");
  EXPECT_EQ(before.all, 1000U);
  EXPECT_EQ(before.stolen, 30U);
  const ProcessorTimes after = parse_processor_times("cpu  150 10 50 800 5 0 5 80 7 7");
  EXPECT_DOUBLE_EQ(stolen_share(before, after), 0.5);
  EXPECT_EQ(stolen_share(after, before), 0.0);
}

TEST(ProcessorTimes, AreZeroWhereTheKernelSaysNothing) {
  for (const char* text : {"", "cpu", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9"}) {
    EXPECT_EQ(parse_processor_times(text).stolen, 0U) << text;
  }
  EXPECT_EQ(stolen_share({}, {}), 0.0);
}

}  // namespace
}  // namespace spillway::lab
