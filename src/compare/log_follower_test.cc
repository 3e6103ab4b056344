// SPDX-License-Identifier: Apache-2.0
#include "compare/log_follower.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace spillway::compare {
namespace {

class LogFollowerTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& text) { std::ofstream(path(), std::ios::app) << text; }
  std::string path() const { return folder_ + "/log"; }

  std::string folder_ = testing::TempDir() + "log_followerXXXXXX";
};

TEST_F(LogFollowerTest, SeesWhatIsAdded) {
  LogFollower follower(path());
  EXPECT_FALSE(follower.look());
  write("{\"event\":\"step\",\"step\":1,\"seconds\":1}\n{\"event\":");
  EXPECT_TRUE(follower.look());
  EXPECT_EQ(follower.log().steps.size(), 1U);
  EXPECT_FALSE(follower.look());
  write("\"end\"}");
  follower.finish();
  EXPECT_TRUE(follower.log().has_ended);
  EXPECT_EQ(follower.log().bad_lines, 0U);
}

TEST_F(LogFollowerTest, AFileThatNeverComesHoldsNothing) {
  LogFollower follower(path());
  follower.finish();
  EXPECT_TRUE(follower.log().is_empty());
}

TEST_F(LogFollowerTest, AFolderInItsPlaceHoldsNothing) {
  std::filesystem::create_directory(path());
  LogFollower follower(path());
  follower.finish();
  EXPECT_TRUE(follower.log().is_empty());
}

TEST_F(LogFollowerTest, OneLookTakesNoMoreThanItMay) {
  write(std::string(2 * LogFollower::kMostBytesPerLook, '\n') + "{\"event\":\"end\"}\n");
  LogFollower follower(path());
  EXPECT_TRUE(follower.look());
  EXPECT_FALSE(follower.log().has_ended);
  follower.finish();
  EXPECT_TRUE(follower.log().has_ended);
}

}  // namespace
}  // namespace spillway::compare
