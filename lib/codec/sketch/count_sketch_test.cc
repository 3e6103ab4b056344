// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch/count_sketch.h"

#include <gtest/gtest.h>

#include "codec/sketch/sketch_testing.h"

namespace spillway::codec::sketch {
namespace {

TEST(CountSketch, PlacesAreTheSameOnEveryMachine) {
  const CellHash elements({Hashing::kElement, 1000}, 42);
  const CellHash lanes({Hashing::kLanes, 1000}, 42);
  std::uint64_t folded = 0;
  for (std::size_t index = 0; index < 1000; ++index) {
    for (const CellHash* hash : {&elements, &lanes}) {
      const Places places = hash->places(index * 7919);
      for (std::size_t i = 0; i < kHashes; ++i) {
        EXPECT_EQ(places.cells[i] / (1000 * hash->shape().lanes()), i);
        folded = (folded ^ (2 * places.cells[i] + places.is_negative[i])) * 0x100000001B3U;
      }
    }
  }
  EXPECT_EQ(folded, 3685002665540668737U);
}

TEST(CountSketch, NeighboursKeepTheirLanes) {
  const CellHash hash({Hashing::kLanes, 50}, 1);
  const Places first = hash.places(128);
  const Places last = hash.places(191);
  for (std::size_t i = 0; i < kHashes; ++i) {
    EXPECT_EQ(first.cells[i] % kWordBits, 0U);
    EXPECT_EQ(last.cells[i], first.cells[i] + 63);
    EXPECT_EQ(last.is_negative[i], first.is_negative[i]);
  }
}

constexpr std::uint64_t kSeed = 9;

struct PeeledSketch {
  std::vector<std::int32_t> truth;
  std::vector<std::int32_t> found;
  Support left;
};

// Sketches values of random keys and reads them back.
PeeledSketch sketch_and_peel(const SketchShape& shape, const Support& keys,
                             const Support& erased = {}) {
  const CellHash hash(shape, kSeed);
  PeeledSketch result{values_on(keys, 1), std::vector<std::int32_t>(keys.length()), {}};
  std::vector<std::int32_t> cells(shape.cells());
  add_to_sketch(hash, keys, result.truth, cells);
  erased.for_each([&](std::size_t cell) { cells[cell] = 12345; });
  auto left = peel(hash, keys, cells, erased, result.found);
  EXPECT_TRUE(left.ok());
  result.left = std::move(left).value();
  return result;
}

void expect_exact_but_for_what_is_left(const PeeledSketch& result) {
  for (std::size_t index = 0; index < result.truth.size(); ++index) {
    ASSERT_EQ(result.found[index], result.left.contains(index) ? 0 : result.truth[index]);
  }
}

TEST(Peeling, GivesEveryValueBackAtThirteenCellsForTenKeys) {
  const Support keys = random_support(400000, 20000, 2);
  const auto result = sketch_and_peel(SketchShape::with_cells(Hashing::kElement, 20000, 130), keys);
  EXPECT_EQ(result.left.count(), 0U);
  EXPECT_EQ(result.found, result.truth);  // of any size: cells may wrap
}

TEST(Peeling, GivesEveryValueBackInLanes) {
  // 3000 keys per lane at 1.3 cells, 500 at 1.5.
  for (const auto& [count, cells_percent] : {std::pair{192000U, 130U}, std::pair{32000U, 150U}}) {
    const Support keys = random_support(1U << 22, count, 3);
    const auto result =
        sketch_and_peel(SketchShape::with_cells(Hashing::kLanes, count, cells_percent), keys);
    expect_exact_but_for_what_is_left(result);
    EXPECT_LE(result.left.count(), count / 2000) << count;
  }
}

TEST(Peeling, ShapesForPeelingAreWideEnoughForAnyNumberOfKeys) {
  std::size_t left = 0;
  std::size_t keys = 0;
  for (const std::size_t count : {1, 2, 3, 5, 10, 30, 100, 300, 1000, 5000, 70000}) {
    const auto shape = SketchShape::for_peeling(count, 130);
    EXPECT_EQ(shape.hashing, count > 65536 ? Hashing::kLanes : Hashing::kElement);
    EXPECT_LE(shape.cells(), 1.4 * static_cast<double>(count) + 160);
    const auto result = sketch_and_peel(shape, random_support(20 * count, count, count));
    expect_exact_but_for_what_is_left(result);
    left += result.left.count();
    keys += count;
  }
  EXPECT_LT(left, keys / 2000);
}

TEST(Peeling, SaysWhatIsLeftOfSketchesThatAreTooSmall) {
  const Support keys = random_support(200000, 10000, 4);
  const auto result = sketch_and_peel(SketchShape::with_cells(Hashing::kElement, 10000, 115), keys);
  EXPECT_GT(result.left.count(), 3000U);
  EXPECT_LT(result.left.count(), 9000U);
  expect_exact_but_for_what_is_left(result);
}

TEST(Peeling, NeverPeelsFromErasedCells) {
  const Support keys = random_support(100000, 5000, 5);
  const auto shape = SketchShape::with_cells(Hashing::kElement, 5000, 200);
  const Support some = random_support(shape.cells(), shape.cells() / 20, 6);
  const auto result = sketch_and_peel(shape, keys, some);
  expect_exact_but_for_what_is_left(result);
  EXPECT_LT(result.left.count(), 50U);  // mostly the other two cells of a key suffice
  const auto nothing = sketch_and_peel(shape, keys, Support::all(shape.cells()));
  EXPECT_EQ(nothing.left, keys);
  expect_exact_but_for_what_is_left(nothing);
}

TEST(Peeling, SketchesOfPartsAddUpToTheSketchOfTheSum) {
  const Support keys = random_support(50000, 2000, 7);
  const CellHash hash(SketchShape::for_peeling(2000, 130), kSeed);
  std::vector<std::int32_t> cells(hash.shape().cells());
  std::vector<std::int32_t> sum(keys.length());
  for (std::uint64_t rank = 0; rank < 7; ++rank) {
    const Support some = keys.without(random_support(50000, 20000, 100 + rank));
    const auto part = values_on(some, rank, largest_number(7));
    std::vector<std::int32_t> its_cells(cells.size());
    add_to_sketch(hash, some, part, its_cells);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      cells[i] = wrapping_add(cells[i], its_cells[i]);
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += part[i];
    }
  }
  std::vector<std::int32_t> found(keys.length());
  const auto left = peel(hash, keys, cells, {}, found);
  ASSERT_TRUE(left.ok());
  EXPECT_EQ(left->count(), 0U);
  EXPECT_EQ(found, sum);
}

TEST(Peeling, KeysThatNobodyNamedShow) {
  const Support keys = random_support(50000, 2000, 8);
  const CellHash hash(SketchShape::for_peeling(2000, 150), kSeed);
  std::vector<std::int32_t> cells(hash.shape().cells());
  add_to_sketch(hash, keys, values_on(keys, 1), cells);
  std::vector<std::int32_t> found(keys.length());
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Support fewer = keys.without(random_support(50000, 1000, seed));
    ASSERT_LT(fewer.count(), keys.count());
    EXPECT_FALSE(peel(hash, fewer, cells, {}, found).ok());
  }
  EXPECT_FALSE(peel(CellHash(hash.shape(), kSeed + 1), keys, cells, {}, found).ok());
}

TEST(Peeling, KeysThatAreZeroDoNoHarm) {
  Support keys = random_support(50000, 1500, 10);
  const CellHash hash(SketchShape::for_peeling(2000, 130), kSeed);
  const auto truth = values_on(keys, 1);
  std::vector<std::int32_t> cells(hash.shape().cells());
  add_to_sketch(hash, keys, truth, cells);
  keys |= random_support(50000, 400, 11);
  std::vector<std::int32_t> found(keys.length());
  EXPECT_EQ(peel(hash, keys, cells, {}, found)->count(), 0U);
  EXPECT_EQ(found, truth);
}

TEST(Peeling, WithoutCellsOrKeysThereIsNothingToDo) {
  const CellHash none(SketchShape{}, kSeed);
  std::vector<std::int32_t> values(100);
  EXPECT_EQ(none.shape().cells(), 0U);
  EXPECT_EQ(*peel(none, random_support(100, 10, 1), {}, {}, values), random_support(100, 10, 1));
  const CellHash some(SketchShape::for_peeling(4, 130), kSeed);
  const std::vector<std::int32_t> cells(some.shape().cells());
  EXPECT_EQ(*peel(some, Support(100), cells, {}, values), Support(100));
}

}  // namespace

}  // namespace spillway::codec::sketch
