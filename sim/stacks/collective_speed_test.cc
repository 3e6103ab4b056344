// SPDX-License-Identifier: Apache-2.0
//
// Times of all-reduces in virtual time, as ratios to each other or to what the links carry: what a
// long path, a lossy one, servers and control packets cost.
#include <gtest/gtest.h>

#include <string>

#include "sim/scenario/scenario.h"
#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

constexpr std::size_t kSpeedValues = 1'000'000;
constexpr base::BitRate kSpeedRate = base::bits_per_second(250'000'000);
const std::string kRackSwitch =
    "switch mode=spillway queue=256k ecn=64k early-drop=192k trim=384\n";
const std::string kLongSwitch =
    "topology one-switch hosts=4 rate=250mbit delay=10ms\n"
    "switch mode=spillway queue=2m ecn=512k early-drop=1536k trim=384\n";

std::string hosts(unsigned count) {
  return "topology one-switch hosts=" + std::to_string(count) + " rate=250mbit delay=1ms\n" +
         kRackSwitch;
}

std::string loses_everywhere(const std::string& share) {
  std::string faults;
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    faults += "fault kind=loss link=" + down_link(rank) + " share=" + share + "\n";
  }
  return faults;
}

struct Cost {
  base::Duration time{};        // of the second operation: the first learns the round trip
  double control_share = 0.0;   // control packets for a data packet
  double repeated_share = 0.0;  // of data packets
};

Cost cost_of(const std::string& scenario, unsigned bits, std::uint16_t servers = 0) {
  SimulatedGroupOptions options;
  options.ranks = static_cast<std::uint16_t>(4 + servers);
  options.servers = servers;
  options.rate = kSpeedRate;
  options.scenario = scenario;
  options.trim_bytes = 384;
  options.plan = {};
  SimulatedGroup group(options);
  const scenario::Scenario faulty = scenario::parse_scenario(scenario).value();
  for (const scenario::Fault& fault : faulty.faults) {
    EXPECT_TRUE(group.network().add_fault(fault).ok());
  }
  Gradients gradients(4, kSpeedValues, 3);
  collective::Operation operation;
  operation.count = kSpeedValues;
  if (bits > 0) {
    collective::Tolerance tolerance;
    tolerance.precision = static_cast<std::uint8_t>(bits);
    tolerance.gather_precision = static_cast<std::uint8_t>(bits);
    operation = tolerant(kSpeedValues, tolerance);
  }
  Cost cost;
  std::size_t ended = 0;
  group.on_ending([&](std::uint16_t rank, const Ending& ending) {
    EXPECT_TRUE(ending.status.ok()) << ending.status.message();
    ended += rank < 4 ? 1 : 0;
  });
  for (std::size_t call = 1; call <= 2; ++call) {
    const base::Instant begun = group.network().now();
    for (std::uint16_t rank = 0; rank < 4; ++rank) {
      EXPECT_TRUE(group.submit(rank, gradients.at(rank, operation)).ok());
    }
    while (ended < 4 * call && group.network().next_time()) {
      group.network().run_until(*group.network().next_time());
    }
    EXPECT_EQ(ended, 4 * call);
    cost.time = group.network().now() - begun;
  }
  double data = 0.0;
  for (std::uint16_t rank = 0; rank < options.ranks; ++rank) {
    const transport::EndpointCounters& counters = group.stack(rank).endpoint().counters();
    data += static_cast<double>(counters.data_sent);
    cost.control_share += static_cast<double>(counters.control_sent);
    cost.repeated_share += static_cast<double>(counters.data_resent);
  }
  cost.control_share /= data;
  cost.repeated_share /= data;
  return cost;
}

// Both directions of a link at once, without headers.
base::Duration link_time(double tensors, unsigned bits) {
  return base::transmission_time(
      base::bytes(static_cast<std::int64_t>(tensors * kSpeedValues * bits / 8)), kSpeedRate);
}

double ratio(base::Duration one, base::Duration other) {
  return seconds_of(one) / seconds_of(other);
}

TEST(CollectiveSpeed, AnExactAllReduceFillsItsLinks) {
  const Cost cost = cost_of(hosts(4), 0);
  EXPECT_LT(ratio(cost.time, link_time(1.5, 32)), 1.16);  // headers alone: 1.09
  EXPECT_LT(cost.control_share, 0.06);
  EXPECT_EQ(cost.repeated_share, 0.0);
}

TEST(CollectiveSpeed, AGrayLinkCostsWhatItLoses) {
  const std::string gray = hosts(4) + "fault kind=gray link=" + down_link(0) + " share=1%\n";
  EXPECT_LT(ratio(cost_of(gray, 0).time, cost_of(hosts(4), 0).time), 1.1);
}

TEST(CollectiveSpeed, ALongWayIsFilledAndItsLossesCostLittle) {
  const Cost clean = cost_of(kLongSwitch, 0);
  EXPECT_LT(ratio(clean.time, link_time(1.5, 32)), 1.5);  // of which four trips are 0.42
  const Cost lossy = cost_of(kLongSwitch + loses_everywhere("1%"), 0);
  EXPECT_LT(ratio(lossy.time, clean.time), 1.6);
  EXPECT_LT(lossy.repeated_share, 0.02);
}

// Four workers send to one server what it can take; the sums travel back meanwhile.
TEST(CollectiveSpeed, ServersSendSumsWhilePartsCome) {
  EXPECT_LT(ratio(cost_of(hosts(5), 16, 1).time, link_time(4, 16)), 1.4);
  EXPECT_LT(ratio(cost_of(hosts(5), 0, 1).time, link_time(4, 32)), 1.35);
}

}  // namespace
}  // namespace spillway::sim
