// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch/count_sketch.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace spillway::codec::sketch
