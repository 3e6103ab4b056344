// SPDX-License-Identifier: Apache-2.0
#include "collective/coded/coded_route.h"

#include <gtest/gtest.h>

#include <set>

namespace spillway::collective {
namespace {

// The receiver expects all that a rank sends for a chunk, as the same step.
TEST(CodedRoute, BothEndsOfEveryHopAgree) {
  for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
    for (const std::uint16_t world : {2, 3, 5, 8}) {
      for (std::uint16_t chunk = 0; chunk < world; ++chunk) {
        std::vector<CodedRoute> routes;
        for (std::uint16_t rank = 0; rank < world; ++rank) {
          routes.push_back(route_of(algorithm, {rank, world}, chunk));
        }
        std::set<std::pair<unsigned, unsigned>> parts;
        std::set<unsigned> have_sum;
        for (std::uint16_t rank = 0; rank < world; ++rank) {
          const CodedRoute& route = routes[rank];
          for (const std::uint16_t from : route.sources) {
            ASSERT_EQ(routes[from].to, rank);
            ASSERT_EQ(routes[from].sent_step, route.received_step);
            parts.emplace(from, rank);
          }
          for (const std::uint16_t to : route.result_to) {
            ASSERT_EQ(routes[to].result_from, rank);
            ASSERT_FALSE(routes[to].has_sum());
            ASSERT_TRUE(have_sum.insert(to).second);
          }
          if (route.has_sum()) {
            have_sum.insert(rank);
          }
        }
        EXPECT_EQ(parts.size(), world - 1U);
        EXPECT_EQ(have_sum.size(), world);
      }
    }
  }
}

TEST(CodedRoute, ARingAddsOneRankAtEveryStep) {
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    const CodedRoute route = route_of(Algorithm::kRing, {rank, 4}, 0);
    EXPECT_EQ(route.sent_step, rank + 1);
    EXPECT_EQ(route.has_sum(), rank == 3);
  }
}

}  // namespace
}  // namespace spillway::collective
