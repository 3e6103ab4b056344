// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "base/random.h"
#include "collective/link_shares.h"

namespace spillway::collective {

namespace {

double part(const Shares& shares, std::size_t rank) {
  return static_cast<double>(shares.end_of(rank) - shares.begin_of(rank)) / Shares::kWhole;
}

TEST(Shares, CutARunWithoutGapsWhateverItsLength) {
  const Shares shares(std::array<std::uint32_t, 4>{0, 1, Shares::kWhole - 2, 1});
  for (const std::size_t count : {std::size_t{0}, std::size_t{5}, std::size_t{65'535},
                                  std::size_t{1'000'003}, std::size_t{1} << 50}) {
    std::size_t next = 0;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const Extent extent = shard_of(count, 4, rank, shares);
      EXPECT_EQ(extent.first, next);
      next += extent.count;
    }
    EXPECT_EQ(next, count);
    EXPECT_EQ(shard_of(count, 4, 0, shares).count, 0U);
    EXPECT_EQ(longest_shard(count, 4, shares), shard_of(count, 4, 2, shares).count);
  }
}

TEST(Shares, EqualOnesCutAsBefore) {
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(shard_of(10, 4, rank, Shares()).first, shard_of(10, 4, rank).first);
    EXPECT_EQ(shard_of(10, 4, rank, Shares()).count, shard_of(10, 4, rank).count);
  }
}

TEST(ShareSolver, HasAllLinksTakeTheSameTime) {
  const std::array<std::uint64_t, 4> links = {650, 1000, 825, 1000};
  EXPECT_NEAR(exchange_time({}, links) * 1000, 1.5 / 0.65, 1e-9);
  const Shares best = best_shares(links);
  EXPECT_NEAR(exchange_time(best, links) * 1000, 6 / 3.475, 1e-3);
  EXPECT_NEAR(part(best, 0), 0.0612, 1e-3);
  EXPECT_NEAR(part(best, 1), 0.3633, 1e-3);
  EXPECT_NEAR(part(best, 2), 0.2122, 1e-3);
}

TEST(ShareSolver, ALinkThatIsTooSlowOwnsNothing) {
  const std::array<std::uint64_t, 4> links = {100, 1000, 1000, 1000};
  const Shares best = best_shares(links);
  EXPECT_EQ(best.end_of(0), 0U);
  EXPECT_NEAR(part(best, 1), 1.0 / 3, 1e-3);
  EXPECT_NEAR(exchange_time(best, links), 1.0 / 100, 1e-9);  // every rank carries the tensor once
}

TEST(ShareSolver, NothingIsBetterThanTheBest) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    base::RandomSequence random(seed);
    std::vector<std::uint64_t> links(3 + random.next_below(8));
    for (std::uint64_t& link : links) {
      link = 1 + random.next_below(1000);
    }
    const Shares best = best_shares(links);
    EXPECT_EQ(best.end_of(links.size() - 1), Shares::kWhole);
    std::vector<std::uint32_t> others(links.size());
    std::uint32_t left = Shares::kWhole;
    for (std::uint32_t& other : others) {
      other = static_cast<std::uint32_t>(random.next_below(left + 1));
      left -= other;
    }
    others.back() += left;
    EXPECT_LE(exchange_time(best, links), exchange_time(Shares(others), links) * 1.001);
    EXPECT_LE(exchange_time(best, links), exchange_time({}, links) * 1.001);
  }
}

TEST(ShareSolver, SharesStayWhereLittleIsGained) {
  const std::array<std::uint64_t, 4> slow = {650, 1000, 1000, 1000};
  EXPECT_EQ(next_shares({}, std::array<std::uint64_t, 4>{970, 1000, 990, 1000}), Shares());
  const Shares moved = next_shares({}, slow);
  EXPECT_FALSE(moved.are_equal());
  EXPECT_EQ(next_shares(moved, std::array<std::uint64_t, 4>{670, 1000, 1000, 1000}), moved);
  EXPECT_EQ(next_shares(moved, std::array<std::uint64_t, 4>{1000, 1000, 980, 1000}), Shares());
  EXPECT_EQ(next_shares(moved, std::array<std::uint64_t, 4>{650, 1000, 0, 1000}), Shares());
}

TEST(ShareSolver, AnyNumbersGiveShares) {
  const std::array<std::uint64_t, 3> wild = {UINT64_MAX, 1, UINT64_MAX / 3};
  EXPECT_EQ(best_shares(wild).end_of(2), Shares::kWhole);
  EXPECT_EQ(best_shares(std::array<std::uint64_t, 2>{1, 1000}), Shares());
}

}  // namespace

}  // namespace spillway::collective
