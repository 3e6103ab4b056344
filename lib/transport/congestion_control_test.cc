// SPDX-License-Identifier: Apache-2.0
#include "transport/congestion_control.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "transport/rival_controls.h"

namespace spillway::transport {
namespace {

constexpr base::Duration kBase = base::microseconds(20);

CongestionConfig config_of(ControllerKind kind) {
  CongestionConfig config;
  config.kind = kind;
  config.packet = base::bytes(1000);
  config.window_initial = base::bytes(64'000);
  config.window_max = base::bytes(1'000'000);
  config.delay_target = base::microseconds(20);
  return config;
}

// A bottleneck with one queue and marks above a threshold. Each step is one round trip, in which a
// whole window is acknowledged.
struct Bottleneck {
  double bytes_per_us = 5000;
  double mark_above = 50'000;

  // The window after `rounds` round trips.
  double run(CongestionControl& control, int rounds, bool over_budget = false) {
    double queue = 0;
    for (int round = 0; round < rounds; ++round) {
      const auto window = static_cast<double>(control.window().count());
      const double pipe = bytes_per_us * static_cast<double>(kBase.count()) / 1000;
      queue = std::max(0.0, window - pipe);
      const base::Duration trip =
          kBase + base::nanoseconds(static_cast<std::int64_t>(queue / bytes_per_us * 1000));
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

class EveryController : public testing::TestWithParam<ControllerKind> {};

TEST_P(EveryController, FillsAnEmptyPipeAndKeepsTheQueueShort) {
  const auto control = make_congestion_control(config_of(GetParam()));
  Bottleneck bottleneck;
  FeedbackSample first;
  first.now = bottleneck.now;
  first.round_trip = kBase;
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
  EXPECT_LE(sum / 100, GetParam() == ControllerKind::kTimely ? 1'000'000 : 300'000);
}

TEST_P(EveryController, ShrinksWhenLossesExceedTheBudget) {
  const auto control = make_congestion_control(config_of(GetParam()));
  Bottleneck bottleneck;
  bottleneck.run(*control, 50);
  const std::int64_t before = control->window().count();
  bottleneck.run(*control, 5, true);
  EXPECT_LT(control->window().count(), before * 3 / 4);
}

TEST_P(EveryController, StaysWithinItsBounds) {
  const CongestionConfig config = config_of(GetParam());
  const auto control = make_congestion_control(config);
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

INSTANTIATE_TEST_SUITE_P(Kinds, EveryController,
                         testing::Values(ControllerKind::kSpillway, ControllerKind::kDctcp,
                                         ControllerKind::kTimely));

TEST(SpillwayControl, MarksWithoutDelayOnlySteer) {
  const auto control = make_congestion_control(config_of(ControllerKind::kSpillway));
  const std::int64_t before = control->window().count();
  FeedbackSample sample;
  sample.round_trip = kBase;
  sample.acked_bytes = 8000;
  sample.acked_packets = 8;
  sample.marked_packets = 8;
  for (int i = 0; i < 100; ++i) {
    sample.now = base::Instant(base::microseconds(100 + 10 * i));
    control->on_feedback(sample);
  }
  EXPECT_EQ(control->window().count(), before);
}

// Credit ran out, or nothing was left to send: that little gets through says nothing about more.
TEST(SpillwayControl, AWindowThatIsNotUsedDoesNotGrowAndIsCutToWhatIs) {
  const CongestionConfig config = config_of(ControllerKind::kSpillway);
  const auto control = make_congestion_control(config);
  FeedbackSample sample;
  sample.round_trip = kBase;
  sample.acked_bytes = 1000;
  sample.acked_packets = 1;
  sample.in_flight_bytes = config.window_initial.count() / 4;
  for (int i = 0; i < 100; ++i) {
    sample.now = base::Instant(base::microseconds(100 + 10 * i));
    control->on_feedback(sample);
  }
  EXPECT_EQ(control->window(), config.window_initial);
  sample.spoilt_packets = 1;
  control->on_feedback(sample);
  EXPECT_LT(control->window().count(), sample.in_flight_bytes);
}

TEST(SpillwayControl, AdaptsQuicklyToAnIncast) {
  CongestionConfig config = config_of(ControllerKind::kSpillway);
  config.window_initial = base::bytes(1'000'000);
  const auto control = make_congestion_control(config);
  // A hundredth of the window gets through per round trip, the queue is ten targets long.
  FeedbackSample sample;
  sample.round_trip = kBase;
  sample.now = base::Instant(base::microseconds(100));
  sample.acked_packets = 10;
  sample.acked_bytes = 10'000;
  sample.in_flight_bytes = config.window_initial.count();
  control->on_feedback(sample);
  sample.round_trip = kBase + config.delay_target * 10;
  sample.marked_packets = 10;
  for (int i = 0; i < 4; ++i) {
    sample.now = sample.now + sample.round_trip;
    control->on_feedback(sample);
  }
  EXPECT_LT(control->window().count(), 50'000);  // halving would need five round trips
}

TEST(SpillwayControl, TrimsUpToTheTargetAreNoCongestion) {
  CongestionConfig config = config_of(ControllerKind::kSpillway);
  config.trimmed_target = 0.2;
  const auto control = make_congestion_control(config);
  FeedbackSample sample;
  sample.round_trip = kBase + config.delay_target * 20;
  sample.acked_bytes = 10'000;
  sample.acked_packets = 10;
  sample.marked_packets = 10;
  sample.trimmed_packets = 2;
  for (int i = 0; i < 100; ++i) {
    sample.now = base::Instant(base::microseconds(100 + 400 * i));
    control->on_feedback(sample);
  }
  EXPECT_GE(control->window(), config.window_initial);
}

TEST(DctcpControl, AveragesTheMarkedShare) {
  DctcpControl control(config_of(ControllerKind::kDctcp));
  FeedbackSample sample;
  sample.round_trip = kBase;
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
}  // namespace spillway::transport
