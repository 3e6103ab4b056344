// SPDX-License-Identifier: Apache-2.0
#include "capi/sized_struct.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace spillway::capi {
namespace {

struct Older {
  std::size_t size = sizeof(Older);
  std::uint64_t first = 0;
};

struct Current {
  std::size_t size = sizeof(Current);
  std::uint64_t first = 1;
  std::uint64_t second = 2;
};

struct Newer {
  std::size_t size = sizeof(Newer);
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::uint64_t third = 0;
};

template <typename T>
const Current* as_current(const T& other) {
  return reinterpret_cast<const Current*>(&other);
}

TEST(SizedStruct, NothingGivenMeansDefaults) {
  const auto read = read_sized<Current>(nullptr, {}, "current");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->first, 1U);
  EXPECT_EQ(read->second, 2U);
}

TEST(SizedStruct, AnOlderCallersUnknownFieldsHaveTheirDefaults) {
  const Older older{.first = 7};
  const auto read = read_sized(as_current(older), Current{}, "current");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->first, 7U);
  EXPECT_EQ(read->second, 2U);
}

TEST(SizedStruct, ANewerCallersUnknownFieldsMustBeZero) {
  Newer newer{.first = 7, .second = 8};
  ASSERT_TRUE(read_sized(as_current(newer), Current{}, "current").ok());
  newer.third = 1;
  const auto read = read_sized(as_current(newer), Current{}, "current");
  EXPECT_EQ(read.status().code(), base::StatusCode::kUnavailable);
}

TEST(SizedStruct, ASizeOfNothingIsRefused) {
  Current empty;
  empty.size = 0;
  EXPECT_FALSE(read_sized(&empty, Current{}, "current").ok());
  EXPECT_FALSE(write_sized(Current{}, &empty, "current").ok());
  EXPECT_FALSE(write_sized<Current>(Current{}, nullptr, "current").ok());
}

TEST(SizedStruct, SettingUpStopsWhereTheCallersStructDoesAndLeavesNothingOfANewerOne) {
  struct {
    Older older;
    std::uint64_t behind = 99;
  } memory;
  init_sized(Current{}, reinterpret_cast<Current*>(&memory), sizeof(Older));
  EXPECT_EQ(memory.older.first, 1U);
  EXPECT_EQ(memory.older.size, sizeof(Older));
  EXPECT_EQ(memory.behind, 99U);

  Newer newer{.first = 7, .second = 8, .third = 9};
  init_sized(Current{}, reinterpret_cast<Current*>(&newer), sizeof(newer));
  EXPECT_EQ(newer.size, sizeof(Newer));
  EXPECT_EQ(newer.second, 2U);
  EXPECT_EQ(newer.third, 0U);
}

TEST(SizedStruct, WritingStopsWhereTheCallersStructDoes) {
  struct {
    Older older;
    std::uint64_t behind = 99;
  } memory;
  ASSERT_TRUE(write_sized(Current{}, reinterpret_cast<Current*>(&memory), "current").ok());
  EXPECT_EQ(memory.older.first, 1U);
  EXPECT_EQ(memory.older.size, sizeof(Older));
  EXPECT_EQ(memory.behind, 99U);
}

}  // namespace
}  // namespace spillway::capi
