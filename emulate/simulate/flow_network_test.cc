// SPDX-License-Identifier: Apache-2.0
#include "emulate/simulate/flow_network.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace spillway::emulate {
namespace {

std::int64_t ns(base::Instant at) {
  return at.since_zero().count();
}

TEST(FlowNetwork, TwoLoadsShareALinkAndTheOneLeftGetsAllOfIt) {
  FlowNetwork network({1.0});
  const std::vector<LinkUse> uses = {{0, 1.0}};
  network.begin(uses, 100);
  network.begin(uses, 300);
  EXPECT_EQ(ns(network.next_end()), 200);  // 100 bytes at half a byte per nanosecond
  std::vector<FlowNetwork::LoadId> ended;
  network.advance(network.next_end(), ended);
  EXPECT_EQ(ended, std::vector<FlowNetwork::LoadId>{0});
  EXPECT_EQ(ns(network.next_end()), 400);  // 200 left, without competition
}

// The textbook example of two links: one load crosses both, the others one each.
TEST(FlowNetwork, RatesAreMaxMinFair) {
  FlowNetwork network({10.0, 4.0});
  const std::vector<LinkUse> both = {{0, 1.0}, {1, 1.0}};
  const std::vector<LinkUse> first = {{0, 1.0}};
  const std::vector<LinkUse> second = {{1, 1.0}};
  const auto a = network.begin(both, 1000);
  const auto b = network.begin(first, 1000);
  const auto c = network.begin(second, 1000);
  network.next_end();
  EXPECT_DOUBLE_EQ(network.rate(a), 2.0);
  EXPECT_DOUBLE_EQ(network.rate(b), 8.0);
  EXPECT_DOUBLE_EQ(network.rate(c), 2.0);
}

TEST(FlowNetwork, AWeightIsSoManyFlows) {
  FlowNetwork network({12.0});
  const std::vector<LinkUse> three = {{0, 3.0}};
  const std::vector<LinkUse> one = {{0, 1.0}};
  const auto a = network.begin(three, 30);
  const auto b = network.begin(one, 30);
  network.next_end();
  EXPECT_DOUBLE_EQ(network.rate(a), 3.0);
  EXPECT_DOUBLE_EQ(network.rate(b), 3.0);
}

TEST(FlowNetwork, LoadsThatShareNothingAreNotTouched) {
  FlowNetwork network({1.0, 1.0});
  const std::vector<LinkUse> here = {{0, 1.0}};
  const std::vector<LinkUse> there = {{1, 1.0}};
  network.begin(here, 1000);
  network.next_end();
  const std::uint64_t before = network.events();
  network.begin(there, 10);
  network.next_end();
  EXPECT_EQ(network.events(), before + 1);
}

TEST(FlowNetwork, WhatUsesNoLinkOrHasNoBytesEndsAtOnce) {
  FlowNetwork network({1.0});
  network.begin({}, 1000);
  const std::vector<LinkUse> uses = {{0, 1.0}};
  network.begin(uses, 0);
  EXPECT_EQ(ns(network.next_end()), 0);
  std::vector<FlowNetwork::LoadId> ended;
  network.advance(base::Instant(), ended);
  EXPECT_EQ(ended.size(), 2U);
  EXPECT_FALSE(network.has_open());
}

// No link exceeds its capacity, and every load has a full link on which no load has a higher rate.
TEST(FlowNetwork, RandomLoadsAreFeasibleAndFair) {
  base::RandomSequence random(7);
  for (int world = 0; world < 50; ++world) {
    std::vector<double> capacities;
    for (int i = 0; i < 12; ++i) {
      capacities.push_back(1.0 + static_cast<double>(random.next_below(9)));
    }
    FlowNetwork network(capacities);
    std::vector<std::vector<LinkUse>> uses(20);
    for (std::vector<LinkUse>& list : uses) {
      for (std::uint32_t link = 0; link < capacities.size(); ++link) {
        if (random.next_below(4) == 0) {
          list.push_back({link, 1.0 + static_cast<double>(random.next_below(3))});
        }
      }
      if (list.empty()) {
        list.push_back({0, 1.0});
      }
      network.begin(list, 1e6);
    }
    network.next_end();
    std::vector<double> used(capacities.size(), 0.0);
    for (std::uint32_t load = 0; load < uses.size(); ++load) {
      for (const LinkUse& use : uses[load]) {
        used[use.link] += use.weight * network.rate(load);
      }
    }
    for (std::size_t link = 0; link < used.size(); ++link) {
      EXPECT_LE(used[link], capacities[link] * (1 + 1e-9));
    }
    for (std::uint32_t load = 0; load < uses.size(); ++load) {
      bool has_bottleneck = false;
      for (const LinkUse& use : uses[load]) {
        bool is_most = used[use.link] > capacities[use.link] * (1 - 1e-9);
        for (std::uint32_t other = 0; is_most && other < uses.size(); ++other) {
          for (const LinkUse& theirs : uses[other]) {
            is_most &=
                theirs.link != use.link || network.rate(other) <= network.rate(load) * (1 + 1e-9);
          }
        }
        has_bottleneck |= is_most;
      }
      EXPECT_TRUE(has_bottleneck) << "load " << load << " of world " << world;
    }
  }
}

}  // namespace
}  // namespace spillway::emulate
