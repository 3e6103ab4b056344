// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/sparse_reducer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "codec/sketch/sketch_testing.h"

namespace spillway::codec::sketch::reference {
namespace {

constexpr SparseJob kJob{.length = 50000, .ranks = 4, .limit = 127};
using Parts = std::vector<std::vector<std::int32_t>>;

Parts sparse_parts(std::uint64_t seed) {
  Parts parts;
  for (std::uint64_t rank = 0; rank < kJob.ranks; ++rank) {
    Support support = random_support(kJob.length, 1500, 1);
    support |= random_support(kJob.length, 200, seed * kJob.ranks + rank + 2);
    parts.push_back(values_on(support, seed + rank, kJob.limit));
  }
  return parts;
}

double relative_error(std::span<const std::int32_t> found, std::span<const std::int32_t> truth) {
  double error = 0;
  double energy = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    error += std::pow(static_cast<double>(found[i]) - truth[i], 2);
    energy += std::pow(static_cast<double>(truth[i]), 2);
  }
  return error / energy;
}

TEST(SparseReducer, TheUnionAndPeeledSketchesAreExact) {
  const Parts parts = sparse_parts(1);
  EXPECT_EQ(make_union(kJob)->reduce(parts, 1)->sum, true_sum(parts));
  const auto peeled = make_plain_sketch(kJob, {.cells_percent = 150})->reduce(parts, 1);
  EXPECT_EQ(peeled->sum, true_sum(parts));
  EXPECT_EQ(peeled->unused, std::vector<Support>(kJob.ranks, Support(kJob.length)));
}

TEST(SparseReducer, MediansOfCellsAreNearOnlyWithManyCells) {
  const Parts parts = sparse_parts(1);
  const auto truth = true_sum(parts);
  double last = 10;
  for (const unsigned cells_percent : {100U, 300U, 1000U}) {
    const auto found =
        make_plain_sketch(kJob, {SketchReading::kMedian, cells_percent, false})->reduce(parts, 1);
    const double error = relative_error(found->sum, truth);
    EXPECT_GT(error, 0.0);
    EXPECT_LT(error, last / 2);
    last = error;
  }
  EXPECT_LT(last, 0.2);
}

TEST(SparseReducer, TopKSendsTheLargestAndOwesTheRest) {
  const Parts parts = sparse_parts(1);
  const auto found = make_top_k(kJob, 400)->reduce(parts, 1);
  Parts sent = parts;
  for (std::size_t rank = 0; rank < kJob.ranks; ++rank) {
    const Support nonzero = Support::of_nonzero(parts[rank]);
    EXPECT_EQ(nonzero.without(found->unused[rank]).count(), 400U);
    std::int32_t smallest_sent = kJob.limit;
    std::int32_t largest_owed = 0;
    nonzero.for_each([&](std::size_t index) {
      const std::int32_t magnitude = std::abs(parts[rank][index]);
      if (found->unused[rank].contains(index)) {
        largest_owed = std::max(largest_owed, magnitude);
        sent[rank][index] = 0;
      } else {
        smallest_sent = std::min(smallest_sent, magnitude);
      }
    });
    EXPECT_LE(largest_owed, smallest_sent);
  }
  EXPECT_EQ(found->sum, true_sum(sent));
}

TEST(SparseReducer, ASupportThatStaysIsCheapestPredicted) {
  const auto predicted = make_predicted(kJob, {}).value();
  const auto sketch = make_plain_sketch(kJob, {});
  for (std::uint64_t step = 0; step < 5; ++step) {
    const Parts parts = sparse_parts(step);
    const auto ours = predicted->reduce(parts, step);
    ASSERT_TRUE(ours.ok());
    if (step < 3) {
      continue;
    }
    EXPECT_EQ(ours->unused[0].count(), 0U);
    EXPECT_EQ(ours->sum, true_sum(parts));
    EXPECT_NEAR(static_cast<double>(ours->misses), 770,
                30);  // 200 per rank, minus the predicted ones
    const auto plain = sketch->reduce(parts, step);
    EXPECT_LT(ours->part_bits + ours->sum_bits, plain->part_bits + plain->sum_bits);
  }
}

TEST(SparseReducer, BitsAreThoseOfNumbersAndIndices) {
  EXPECT_EQ(number_bits(kJob, 1), 8U);
  EXPECT_EQ(number_bits(kJob, 4), 10U);
  const auto first = make_predicted(kJob, {}).value()->reduce(sparse_parts(1), 1);
  EXPECT_EQ(first->part_bits, kJob.length * 8 + 8);  // dense, without misses
  EXPECT_EQ(first->sum_bits, kJob.length * 10 + 8);
  const auto raw = make_plain_sketch(kJob, {.raw_bitmap = true})->reduce(sparse_parts(1), 1);
  const std::uint64_t cells = SketchShape::with_cells(Hashing::kElement, raw->nonzero, 130).cells();
  EXPECT_EQ(raw->sum_bits, kJob.length + cells * 10);
}

TEST(SparseReducer, ZerosAndSingleValuesPass) {
  const SparseJob tiny{.length = 1, .ranks = 2, .limit = 127};
  for (const std::int32_t value : {0, 5}) {
    const Parts parts(2, std::vector<std::int32_t>{value});
    for (const auto& reducer : {make_union(tiny), make_plain_sketch(tiny, {}), make_top_k(tiny, 1),
                                make_plain_sketch(tiny, {.reading = SketchReading::kMedian})}) {
      EXPECT_EQ(reducer->reduce(parts, 1)->sum.front(), 2 * value);
    }
  }
}

}  // namespace

}  // namespace spillway::codec::sketch::reference
