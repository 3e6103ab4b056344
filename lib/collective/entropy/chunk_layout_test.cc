// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "collective/entropy/chunk_layout.h"

namespace spillway::collective {

namespace {

ChunkOptions options_of(ChunkRule rule, std::uint16_t chunks = 4) {
  return {.chunks = chunks, .rule = rule, .piece_values = 10'000, .most_pieces = 8};
}

// The blocks at the front cost most.
std::vector<std::uint32_t> falling_costs(std::size_t blocks) {
  std::vector<std::uint32_t> costs(blocks);
  for (std::size_t block = 0; block < blocks; ++block) {
    costs[block] = static_cast<std::uint32_t>(40'000 / (block + 1));
  }
  return costs;
}

TEST(ChunkLayout, PiecesHaveEveryBlockOnce) {
  for (const ChunkRule rule : {ChunkRule::kEqual, ChunkRule::kBalanced, ChunkRule::kStriped}) {
    for (const std::size_t count : {1UL, 255UL, 5'000UL, 300'001UL}) {
      const BlockGrid grid(count, 4);
      const std::vector<std::uint32_t> costs = falling_costs(grid.blocks());
      std::vector<int> seen(grid.blocks());
      std::size_t values = 0;
      for (const ChunkPiece& piece : cut_chunks(grid, options_of(rule), costs)) {
        values += piece.values;
        for (std::size_t i = 0; i < piece.blocks.count; ++i) {
          ++seen[piece.blocks.block(i)];
        }
      }
      EXPECT_EQ(values, count);
      EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
    }
  }
}

TEST(ChunkLayout, AChunkHasAtMostSoManyPieces) {
  const BlockGrid grid(1'000'000, 4);
  for (const ChunkRule rule : {ChunkRule::kEqual, ChunkRule::kBalanced, ChunkRule::kStriped}) {
    std::vector<std::size_t> pieces(4);
    for (const ChunkPiece& piece :
         cut_chunks(grid, options_of(rule), falling_costs(grid.blocks()))) {
      ++pieces[piece.chunk];
    }
    EXPECT_EQ(most_pieces_of_chunk(grid, options_of(rule)), 8U);
    EXPECT_LE(*std::max_element(pieces.begin(), pieces.end()), 8U);
  }
}

TEST(ChunkLayout, BalancedChunksCostAlike) {
  const BlockGrid grid(1'000'000, 4);
  const std::vector<std::uint32_t> costs = falling_costs(grid.blocks());
  const auto dearest = [&](ChunkRule rule) {
    std::uint64_t most = 0;
    for (const BlockRun& run : share_out_blocks(grid, options_of(rule), costs)) {
      std::uint64_t cost = 0;
      for (std::size_t i = 0; i < run.count; ++i) {
        cost += costs[run.block(i)];
      }
      most = std::max(most, cost);
    }
    return most;
  };
  EXPECT_LT(dearest(ChunkRule::kBalanced), dearest(ChunkRule::kEqual) * 2 / 3);
  EXPECT_LT(dearest(ChunkRule::kStriped), dearest(ChunkRule::kEqual));
}

TEST(ChunkLayout, EverybodyHasABlockWhileThereAreEnough) {
  const BlockGrid grid(64 * 4096, 16);
  std::vector<std::uint32_t> costs(grid.blocks());
  costs.front() = 1'000'000;
  for (const BlockRun& run : share_out_blocks(grid, options_of(ChunkRule::kBalanced, 16), costs)) {
    EXPECT_GE(run.count, 1U);
  }
  const BlockGrid few(300, 16);
  const auto runs = share_out_blocks(few, options_of(ChunkRule::kBalanced, 16),
                                     std::vector<std::uint32_t>(few.blocks()));
  EXPECT_EQ(std::accumulate(runs.begin(), runs.end(), std::size_t{0},
                            [](std::size_t sum, const BlockRun& run) { return sum + run.count; }),
            few.blocks());
}

TEST(ChunkLayout, WithoutCostsBalancedIsEqual) {
  const BlockGrid grid(100'000, 4);
  const auto balanced = share_out_blocks(grid, options_of(ChunkRule::kBalanced), {});
  const auto equal = share_out_blocks(grid, options_of(ChunkRule::kEqual), {});
  for (std::size_t chunk = 0; chunk < 4; ++chunk) {
    EXPECT_EQ(balanced[chunk].first, equal[chunk].first);
    EXPECT_EQ(balanced[chunk].count, equal[chunk].count);
  }
}

TEST(ChunkLayout, SectionsShareNoBlockAndKeepTheNamesOfPieces) {
  const std::array<std::size_t, 3> lengths = {50'001, 0, 90'000};
  const BlockGrid grid(lengths, 1024);
  EXPECT_EQ(grid.blocks(), 49U + 88U);
  EXPECT_EQ(grid.extent_of(48).count, 50'001U - 48 * 1024);
  EXPECT_EQ(grid.extent_of(49).first, 50'001U);
  std::vector<int> seen(grid.blocks());
  std::size_t values = 0;
  for (const ChunkPiece& piece : cut_chunks(grid, options_of(ChunkRule::kStriped), {})) {
    EXPECT_EQ(piece.number % 3, piece.section);
    EXPECT_NE(piece.section, 1);
    values += piece.values;
    for (std::size_t i = 0; i < piece.blocks.count; ++i) {
      const std::size_t block = piece.blocks.block(i);
      EXPECT_EQ(block < 49, piece.section == 0);
      ++seen[block];
    }
  }
  EXPECT_EQ(values, 140'001U);
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
}

}  // namespace

namespace {

// The receiver expects all that a rank sends for a chunk, as the same step.
TEST(EntropyRoute, BothEndsOfEveryHopAgree) {
  for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
    for (const std::uint16_t world : {2, 3, 5, 8}) {
      for (std::uint16_t chunk = 0; chunk < world; ++chunk) {
        std::vector<EntropyRoute> routes;
        for (std::uint16_t rank = 0; rank < world; ++rank) {
          routes.push_back(route_of(algorithm, {rank, world}, chunk));
        }
        std::set<std::pair<unsigned, unsigned>> parts;
        std::set<unsigned> have_sum;
        for (std::uint16_t rank = 0; rank < world; ++rank) {
          const EntropyRoute& route = routes[rank];
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

TEST(EntropyRoute, ARingAddsOneRankAtEveryStep) {
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    const EntropyRoute route = route_of(Algorithm::kRing, {rank, 4}, 0);
    EXPECT_EQ(route.sent_step, rank + 1);
    EXPECT_EQ(route.has_sum(), rank == 3);
  }
}

}  // namespace

}  // namespace spillway::collective
