// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/dilation.h"

#include <gtest/gtest.h>

#include "transport/message.h"

namespace spillway::scenario {
namespace {

constexpr const char* kText = R"(
topology leaf-spine hosts=4 leaves=2 spines=1 rate=1gbit uplink-rate=400mbit delay=10us
switch mode=spillway queue=128k
aggregate lease=100ms
tenant from=host1 to=host0 protocol=udp rate=70% on=20ms off=10ms start=1ms
tenant from=host3 to=host2 protocol=udp rate=100mbit on=7ms off=13ms
fault kind=loss link=leaf0->host0 share=1% from=2ms until=3ms
fault kind=gray link=leaf0->host1 share=1%
)";

TEST(Dilation, SlowsEverythingThatHasATimeInIt) {
  const Scenario base = parse_scenario(kText).value();
  const Scenario slow = dilated(base, 4);
  EXPECT_EQ(slow.topology.rate, base::bits_per_second(250'000'000));
  EXPECT_EQ(slow.topology.uplink_rate, base::bits_per_second(100'000'000));
  EXPECT_EQ(slow.topology.delay, base::microseconds(40));
  EXPECT_EQ(slow.tenants[0].share, base.tenants[0].share);
  EXPECT_EQ(slow.tenants[0].on, base::milliseconds(80));
  EXPECT_EQ(slow.tenants[0].off, base::milliseconds(40));
  EXPECT_EQ(slow.tenants[0].start.since_zero(), base::milliseconds(4));
  EXPECT_EQ(slow.tenants[1].rate, base::bits_per_second(25'000'000));
  EXPECT_EQ(slow.faults[0].from.since_zero(), base::milliseconds(8));
  EXPECT_EQ(slow.faults[0].until.since_zero(), base::milliseconds(12));
  EXPECT_EQ(slow.faults[1].until, transport::kNever);
  EXPECT_EQ(slow.faults[1].share, 0.01);
  EXPECT_EQ(slow.aggregations[0].config.lease_us, 4 * base.aggregations[0].config.lease_us);
}

TEST(Dilation, KeepsTheBytesOfQueuesAndOfPipes) {
  const Scenario base = parse_scenario(kText).value();
  const Scenario slow = dilated(base, 4);
  EXPECT_EQ(slow.port.queue_bytes, base.port.queue_bytes);
  EXPECT_EQ(slow.port.ecn_bytes, base.port.ecn_bytes);
  const auto pipe = [](const Scenario& scenario) {
    return scenario.topology.rate.count() * scenario.topology.delay.count();
  };
  EXPECT_EQ(pipe(slow), pipe(base));
  EXPECT_EQ(dilated(base, 1).topology.rate, base.topology.rate);
}

TEST(Dilation, ATopologyFromAFileCannotBe) {
  Scenario scenario = parse_scenario(kText).value();
  EXPECT_TRUE(can_be_dilated(scenario));
  scenario.topology.kind = TopologyKind::kFile;
  EXPECT_FALSE(can_be_dilated(scenario));
}

}  // namespace
}  // namespace spillway::scenario
