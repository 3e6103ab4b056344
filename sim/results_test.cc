// SPDX-License-Identifier: Apache-2.0
#include "sim/results.h"

#include <gtest/gtest.h>

namespace spillway::sim {
namespace {

base::Duration us(std::int64_t count) {
  return base::microseconds(count);
}

FlowRecord record(HostId from, HostId to, std::uint64_t bytes, std::int64_t start_us,
                  std::int64_t end_us, FlowEnd end = FlowEnd::kDone) {
  FlowRecord record{};
  record.flow.from = from;
  record.flow.to = to;
  record.flow.bytes = bytes;
  record.start = base::Instant(us(start_us));
  record.end = base::Instant(us(end_us));
  record.started = record.ended = true;
  record.result.end = end;
  record.result.packets = 10;
  record.result.delivered = 9;
  return record;
}

TEST(Results, SlowdownIsAgainstTheBusiestHostLink) {
  JobResult result;
  // 2 x 125 kB to host 0: 200 us at 10 Gbit/s.
  add_flow_figures({{record(1, 0, 125'000, 0, 150), record(2, 0, 125'000, 10, 300)}},
                   base::gigabits_per_second(10), result);
  EXPECT_EQ(result.makespan, us(300));
  EXPECT_DOUBLE_EQ(result.slowdown, 1.5);
  EXPECT_NEAR(result.goodput_bps, 0.9 * 250'000 * 8 / 300e-6, 1.0);  // a tenth is missing
  EXPECT_EQ(result.packets, 20U);
  EXPECT_EQ(result.missing(), 2U);
}

TEST(Results, GoodputCountsWholePacketsOnly) {
  FlowRecord trimmed = record(1, 0, 100'000, 0, 100);
  trimmed.result.delivered = 10;
  trimmed.result.trimmed = 4;
  JobResult result;
  add_flow_figures({{trimmed}}, base::gigabits_per_second(10), result);
  EXPECT_DOUBLE_EQ(result.whole_share(), 0.6);
  EXPECT_NEAR(result.goodput_bps, 60'000 * 8 / 100e-6, 1.0);
}

TEST(Results, FlowsThatFailedOrDidNotEndAreToldApart) {
  FlowRecord unfinished = record(3, 0, 1000, 0, 0);
  unfinished.ended = false;
  JobResult result;
  add_flow_figures(
      {{record(1, 0, 1000, 0, 100), record(2, 0, 1000, 0, 200, FlowEnd::kPeerDead), unfinished}},
      base::gigabits_per_second(10), result);
  EXPECT_EQ(result.flows, 3U);
  EXPECT_EQ(result.ended, 1U);
  EXPECT_EQ(result.failed, 1U);
  EXPECT_EQ(result.bytes, 1000U);
  EXPECT_EQ(result.completion.count, 1U);
  EXPECT_EQ(result.slowdown, 0.0);
}

TEST(Results, DropsAreSummedOverReasons) {
  spillway_port_counters counters = {};
  counters.packets[SPILLWAY_REASON_ADMITTED] = 100;
  counters.packets[SPILLWAY_REASON_TRIMMED] = 50;
  counters.packets[SPILLWAY_REASON_QUEUE_FULL] = 1;
  counters.packets[SPILLWAY_REASON_EARLY] = 2;
  counters.packets[SPILLWAY_REASON_RED] = 3;
  counters.packets[SPILLWAY_REASON_CONTROL_FULL] = 4;
  EXPECT_EQ(dropped_packets(counters), 10U);
}

}  // namespace
}  // namespace spillway::sim
