// SPDX-License-Identifier: Apache-2.0
#include "sim/all_reduces.h"

#include <gtest/gtest.h>

#include <string>

namespace spillway::sim {
namespace {

AllReducesSetting among_four(const std::string& scenario) {
  return {.scenario = scenario::parse_scenario(scenario).value(),
          .ranks = 4,
          .values = 200'000,
          .count = 3};
}

const std::string kFourHosts =
    "topology one-switch hosts=4 rate=250mbit delay=10us\nswitch mode=spillway trim=384\n";

TEST(AllReduces, TakeTheSameTimeEveryTimeTheyAreSimulated) {
  const AllReducesResult result = run_all_reduces(among_four(kFourHosts)).value();
  ASSERT_EQ(result.times.size(), 3U);
  EXPECT_EQ(result.times, run_all_reduces(among_four(kFourHosts)).value().times);
  // 1.5 tensors over a link of 250 Mb/s.
  const base::Duration bound = base::transmission_time(base::bytes(1'200'000), result.rate);
  EXPECT_GT(result.median(), bound);
  EXPECT_LT(result.median(), bound + bound);
  EXPECT_GT(result.data_packets, 3U * 4U * 800U);
  EXPECT_EQ(result.repeated_packets, 0U);
}

TEST(AllReduces, FollowTheSetting) {
  AllReducesSetting setting =
      among_four(kFourHosts + "fault kind=loss link=switch0->host1 share=2%\n");
  setting.algorithm = collective::Algorithm::kRing;
  const AllReducesResult result = run_all_reduces(setting).value();
  EXPECT_EQ(result.algorithm, collective::Algorithm::kRing);
  EXPECT_GT(result.repeated_packets, 0U);
  setting.tolerance = {.precision = 5, .gather_precision = 5, .loss_bound_ppm = 50'000};
  setting.algorithm = collective::Algorithm::kAutomatic;
  EXPECT_LT(run_all_reduces(setting).value().data_packets, result.data_packets / 3);
}

TEST(AllReduces, SayWhatDoesNotFit) {
  AllReducesSetting setting = among_four(kFourHosts);
  setting.ranks = 5;
  EXPECT_NE(run_all_reduces(setting).status().message().find("5 ranks do not fit 4 hosts"),
            std::string::npos);
  setting.ranks = 4;
  setting.scenario.limit = base::milliseconds(1);
  EXPECT_EQ(run_all_reduces(setting).status().code(), base::StatusCode::kTimedOut);
}

}  // namespace
}  // namespace spillway::sim
