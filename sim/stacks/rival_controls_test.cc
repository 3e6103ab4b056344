// SPDX-License-Identifier: Apache-2.0
#include "sim/stacks/rival_controls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

namespace spillway::sim {
namespace {

using scenario::WindowControl;
using transport::CongestionConfig;
using transport::FeedbackSample;

constexpr base::Duration kBaseRoundTrip = base::microseconds(20);

CongestionConfig config_of(WindowControl control) {
  CongestionConfig config;
  config.make = maker_of(control);
  config.packet = base::bytes(1000);
  config.window_initial = base::bytes(64'000);
  config.window_max = base::bytes(1'000'000);
  config.delay_target = base::microseconds(20);
  return config;
}

std::unique_ptr<transport::CongestionControl> made(WindowControl control) {
  const CongestionConfig config = config_of(control);
  return config.make(config);
}

// A bottleneck with one queue and marks above a threshold. Each step is one round trip, in which a
// whole window is acknowledged.
struct Bottleneck {
  double bytes_per_us = 5000;
  double mark_above = 50'000;

  // The window after `rounds` round trips.
  double run(transport::CongestionControl& control, int rounds, bool over_budget = false) {
    double queue = 0;
    for (int round = 0; round < rounds; ++round) {
      const auto window = static_cast<double>(control.window().count());
      const double pipe = bytes_per_us * static_cast<double>(kBaseRoundTrip.count()) / 1000;
      queue = std::max(0.0, window - pipe);
      const base::Duration trip =
          kBaseRoundTrip +
          base::nanoseconds(static_cast<std::int64_t>(queue / bytes_per_us * 1000));
      now = now + trip;
      // In ten reports, as a receiver would.
      for (int part = 0; part < 10; ++part) {
        FeedbackSample sample;
        sample.now = now + base::nanoseconds(part * trip.count() / 10);
        sample.round_trip = trip;
        sample.acked_bytes = static_cast<std::int64_t>(window / 10);
        sample.in_flight_bytes = control.window().count();
        sample.acked_packets = static_cast<std::uint32_t>(window / 10'000) + 1;
        sample.marked_packets = queue > mark_above ? sample.acked_packets : 0;
        sample.over_budget = over_budget;
        control.on_feedback(sample);
      }
    }
    return static_cast<double>(control.window().count());
  }
  base::Instant now = base::Instant(base::milliseconds(1));
};

class EveryWindowControl : public testing::TestWithParam<WindowControl> {};

TEST_P(EveryWindowControl, FillsAnEmptyPipeAndKeepsTheQueueShort) {
  const auto control = made(GetParam());
  Bottleneck bottleneck;
  FeedbackSample first;
  first.now = bottleneck.now;
  first.round_trip = kBaseRoundTrip;
  first.acked_bytes = 1000;
  first.acked_packets = 1;
  control->on_feedback(first);
  bottleneck.run(*control, 300);
  double sum = 0;
  for (int i = 0; i < 100; ++i) {
    sum += bottleneck.run(*control, 1);
  }
  // The pipe holds 100,000 bytes; TIMELY's upper threshold lets the queue grow to ten targets.
  EXPECT_GE(sum / 100, 70'000);
  EXPECT_LE(sum / 100, GetParam() == WindowControl::kTimely ? 1'000'000 : 300'000);
}

TEST_P(EveryWindowControl, ShrinksWhenLossesExceedTheBudget) {
  const auto control = made(GetParam());
  Bottleneck bottleneck;
  bottleneck.run(*control, 50);
  const std::int64_t before = control->window().count();
  bottleneck.run(*control, 5, true);
  EXPECT_LT(control->window().count(), before * 3 / 4);
}

TEST_P(EveryWindowControl, StaysWithinItsBounds) {
  const CongestionConfig config = config_of(GetParam());
  const auto control = config.make(config);
  Bottleneck wide{.bytes_per_us = 1e6, .mark_above = 1e9};
  wide.run(*control, 3000);
  EXPECT_LE(control->window(), config.window_max);
  Bottleneck narrow{.bytes_per_us = 1, .mark_above = 0};
  for (int i = 0; i < 200; ++i) {
    narrow.run(*control, 1, true);
    control->on_silence(narrow.now);
  }
  EXPECT_GE(control->window(), config.packet);
  EXPECT_LE(control->window(), config.packet * 8);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryWindowControl,
                         testing::Values(WindowControl::kSpillway, WindowControl::kDctcp,
                                         WindowControl::kTimely));

TEST(DctcpControl, AveragesTheMarkedShare) {
  DctcpControl control(config_of(WindowControl::kDctcp));
  FeedbackSample sample;
  sample.round_trip = kBaseRoundTrip;
  sample.acked_packets = 8;
  sample.marked_packets = 2;
  for (int i = 0; i < 2000; ++i) {
    sample.now = base::Instant(base::microseconds(100 + 10 * i));
    sample.acked_bytes = control.window().count();
    control.on_feedback(sample);
  }
  EXPECT_NEAR(control.marked_share(), 0.25, 0.02);
}

}  // namespace
}  // namespace spillway::sim
