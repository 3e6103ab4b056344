// SPDX-License-Identifier: Apache-2.0
#include "lab/fabric_sampler.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace spillway::lab {
namespace {

TEST(FabricSampler, LooksAgainAndAgainUntilItGoes) {
  std::vector<FabricSample> samples;
  std::promise<void> third;
  std::uint64_t looks = 0;
  {
    const FabricSampler sampler(
        [&looks] {
          fabric::FabricSnapshot fabric;
          fabric.lost_to_faults = ++looks;
          return fabric;
        },
        [&samples, &third](const FabricSample& sample) {
          samples.push_back(sample);
          if (samples.size() == 3) {
            third.set_value();
          }
        });
    third.get_future().wait();
  }
  ASSERT_GE(samples.size(), 3U);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].lost, i + 1);
    EXPECT_TRUE(i == 0 || samples[i].at - samples[i - 1].at >= kSampleEvery);
  }
}

TEST(FabricSampler, OneThatGoesAtOnceHasLookedOnce) {
  int samples = 0;
  {
    const FabricSampler sampler([] { return fabric::FabricSnapshot(); }, [&](auto&) { ++samples; });
  }
  EXPECT_EQ(samples, 1);
}

TEST(FabricSampler, LongRunsAreLookedAtLessOften) {
  EXPECT_EQ(sample_pause(1), kSampleEvery);
  EXPECT_EQ(sample_pause(kSamplesPerPace), kSampleEvery);
  EXPECT_EQ(sample_pause(kSamplesPerPace + 1), kSampleEvery * 2);
  EXPECT_EQ(sample_pause(2 * kSamplesPerPace + 1), kSampleEvery * 4);
  EXPECT_GT(sample_pause(static_cast<std::size_t>(-1)), base::Duration());
}

}  // namespace
}  // namespace spillway::lab
