// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/training.h"

#include <gtest/gtest.h>

#include "sim/scenario/scenario.h"

namespace spillway::scenario {
namespace {

base::Result<Scenario> parse_line(const std::string& keys) {
  return parse_scenario("training " + keys + "\n");
}

TEST(Training, OneValueIsForAllLayersAListForEach) {
  const Scenario scenario =
      parse_line("name=vgg workers=8 servers=1 bytes=64k,1MB,4MB forward=100us steps=3").value();
  ASSERT_EQ(scenario.trainings.size(), 1U);
  const Training& vgg = scenario.trainings[0];
  EXPECT_EQ(vgg.name, "vgg");
  EXPECT_EQ(vgg.hosts(), 9U);
  ASSERT_EQ(vgg.layers.size(), 3U);
  EXPECT_EQ(vgg.layers[2].bytes, base::bytes(4'000'000));
  EXPECT_EQ(vgg.layers[0].forward, base::microseconds(100));
  EXPECT_EQ(vgg.layers[2].forward, base::microseconds(100));
  EXPECT_EQ(parse_line("layers=5 bytes=1MB").value().trainings[0].layers.size(), 5U);
}

TEST(Training, UnnamedOnesAreNumbered) {
  const Scenario scenario = parse_scenario("training workers=2\ntraining workers=3\n").value();
  EXPECT_EQ(scenario.trainings[1].name, "training2");
}

TEST(Training, SaysWhatIsWrong) {
  const auto message = [](const std::string& keys) {
    const base::Result<Scenario> scenario = parse_line(keys);
    return scenario.ok() ? std::string() : scenario.status().message();
  };
  EXPECT_NE(message("layers=3 bytes=1MB,2MB").find("a list of 2 for 3 layers"), std::string::npos);
  EXPECT_NE(message("bytes=1MB,x").find("line 1"), std::string::npos);
  EXPECT_NE(message("bytes=2").find("4 bytes to 1GiB"), std::string::npos);
  EXPECT_NE(message("workers=1").find("2 to 128"), std::string::npos) << message("workers=1");
  EXPECT_NE(message("workers=100 servers=60").find("at most 128"), std::string::npos);
  EXPECT_NE(message("code=thc bits=5").find("2, 3, 4 or 8"), std::string::npos);
}

}  // namespace
}  // namespace spillway::scenario
