// SPDX-License-Identifier: Apache-2.0
//
// Tests of structs that may grow, and of spillway_variable().
#include <gtest/gtest.h>
#include <spillway/spillway.h>
#include <stdlib.h>

#include <array>
#include <cstdint>
#include <string>

#include "capi/handles.h"

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

namespace {

// Sets an environment variable while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

std::array<char, 64> text{};
int is_set = -1;

spillway_status read(const char* name) {
  return spillway_variable(name, text.data(), text.size(), &is_set);
}

TEST(CApiVariable, IsWhatIsSetOrTheDefault) {
  EXPECT_EQ(read("SPILLWAY_PEER_TIMEOUT"), SPILLWAY_OK);
  EXPECT_STREQ(text.data(), "1.4");
  EXPECT_EQ(is_set, 0);
  EXPECT_EQ(read("SPILLWAY_BITS"), SPILLWAY_OK);
  EXPECT_STREQ(text.data(), "");
  const Variable bits("SPILLWAY_BITS", " 12");
  EXPECT_EQ(read("SPILLWAY_BITS"), SPILLWAY_OK);
  EXPECT_STREQ(text.data(), "12");
  EXPECT_EQ(is_set, 1);
  EXPECT_EQ(spillway_variable("SPILLWAY_CODEC", text.data(), text.size(), nullptr), SPILLWAY_OK);
  EXPECT_STREQ(text.data(), "exact");
}

TEST(CApiVariable, WhatIsNotAllowedIsNamed) {
  const Variable carrier("SPILLWAY_CARRIER", "sctp");
  EXPECT_EQ(read("SPILLWAY_CARRIER"), SPILLWAY_INVALID_ARGUMENT);
  const std::string sentence = "SPILLWAY_CARRIER is 'sctp': it must be auto, udp or tcp";
  EXPECT_EQ(spillway_last_error(), sentence);
  spillway_comm* comm = nullptr;
  EXPECT_EQ(spillway_comm_create(nullptr, &comm), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_last_error(), sentence);
  EXPECT_EQ(comm, nullptr);
}

TEST(CApiVariable, ANameThatNothingReadsIsRefusedWithTheNearest) {
  EXPECT_EQ(read("SPILLWAY_TRIM_BYTE"), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_NE(std::string(spillway_last_error()).find("SPILLWAY_TRIM_BYTES"), std::string::npos);
}

TEST(CApiVariable, RoomThatIsTooSmallIsNotWrittenTo) {
  std::array<char, 2> small = {'x', 'y'};
  EXPECT_EQ(spillway_variable("SPILLWAY_RENDEZVOUS_TIMEOUT", small.data(), small.size(), nullptr),
            SPILLWAY_LIMIT_EXCEEDED);
  EXPECT_EQ(small[0], 'x');
  EXPECT_EQ(spillway_variable("SPILLWAY_SERVERS", small.data(), small.size(), nullptr),
            SPILLWAY_OK);
  EXPECT_STREQ(small.data(), "0");
  EXPECT_EQ(spillway_variable(nullptr, small.data(), small.size(), nullptr),
            SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_variable("SPILLWAY_CODEC", nullptr, 0, nullptr), SPILLWAY_INVALID_ARGUMENT);
}

}  // namespace
