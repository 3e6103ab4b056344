// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "lab/network/fabric_sampler.h"

namespace spillway::lab {
namespace {

TEST(FabricSample, AddsUpItsPorts) {
  fabric::FabricSnapshot fabric;
  fabric.lost_to_faults = 1000;
  for (const unsigned scale : {1U, 10U}) {
    fabric::PortSnapshot& port = fabric.ports.emplace_back();
    port.sent_bytes = 5 * scale;
    port.queued_bytes = 7 * scale;
    port.lost_to_faults = 500;  // already in the fabric's total
    for (unsigned reason = 0; reason < SPILLWAY_REASONS; ++reason) {
      port.counters.packets[reason] = scale;
    }
  }
  const FabricSample sample = sample_of(fabric, base::milliseconds(3));
  EXPECT_EQ(sample.at, base::milliseconds(3));
  EXPECT_EQ(sample.sent_bytes, 55U);
  EXPECT_EQ(sample.queued_bytes, 77U);
  EXPECT_EQ(sample.deepest_bytes, 70U);
  EXPECT_EQ(sample.trimmed, 11U);
  EXPECT_EQ(sample.lost, 1000U + 4 * 11U);  // full, early, red, control full
}

TEST(FabricSample, AFabricWithoutPortsHasNothing) {
  const FabricSample sample = sample_of({}, {});
  EXPECT_EQ(sample.queued_bytes, 0U);
  EXPECT_EQ(sample.deepest_bytes, 0U);
}

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
