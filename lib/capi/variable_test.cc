// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <spillway/spillway.h>
#include <stdlib.h>

#include <array>
#include <string>

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
  EXPECT_EQ(read("SPILLWAY_PRECISION"), SPILLWAY_OK);
  EXPECT_STREQ(text.data(), "5");
  EXPECT_EQ(is_set, 0);
  EXPECT_EQ(read("SPILLWAY_GATHER_PRECISION"), SPILLWAY_OK);
  EXPECT_STREQ(text.data(), "");
  const Variable precision("SPILLWAY_PRECISION", " 12");
  EXPECT_EQ(read("SPILLWAY_PRECISION"), SPILLWAY_OK);
  EXPECT_STREQ(text.data(), "12");
  EXPECT_EQ(is_set, 1);
  EXPECT_EQ(spillway_variable("SPILLWAY_MODE", text.data(), text.size(), nullptr), SPILLWAY_OK);
  EXPECT_STREQ(text.data(), "exact");
}

TEST(CApiVariable, WhatIsNotAllowedIsNamed) {
  const Variable mode("SPILLWAY_MODE", "sloppy");
  EXPECT_EQ(read("SPILLWAY_MODE"), SPILLWAY_INVALID_ARGUMENT);
  const std::string sentence = "SPILLWAY_MODE is 'sloppy': it must be exact or tolerant";
  EXPECT_EQ(spillway_last_error(), sentence);
  spillway_comm* comm = nullptr;
  EXPECT_EQ(spillway_comm_create(nullptr, &comm), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_last_error(), sentence);
  EXPECT_EQ(comm, nullptr);
}

TEST(CApiVariable, ANameThatNothingReadsIsRefusedWithTheNearest) {
  EXPECT_EQ(read("SPILLWAY_PRECISON"), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_NE(std::string(spillway_last_error()).find("SPILLWAY_PRECISION"), std::string::npos);
}

TEST(CApiVariable, RoomThatIsTooSmallIsNotWrittenTo) {
  std::array<char, 2> small = {'x', 'y'};
  EXPECT_EQ(spillway_variable("SPILLWAY_TOLERANT_BYTES", small.data(), small.size(), nullptr),
            SPILLWAY_LIMIT_EXCEEDED);
  EXPECT_EQ(small[0], 'x');
  EXPECT_EQ(spillway_variable("SPILLWAY_PRECISION", small.data(), small.size(), nullptr),
            SPILLWAY_OK);
  EXPECT_STREQ(small.data(), "5");
  EXPECT_EQ(spillway_variable(nullptr, small.data(), small.size(), nullptr),
            SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_variable("SPILLWAY_MODE", nullptr, 0, nullptr), SPILLWAY_INVALID_ARGUMENT);
}

}  // namespace
