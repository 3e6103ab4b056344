// SPDX-License-Identifier: Apache-2.0
#include "net/wait_board.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace spillway::net {
namespace {

class WaitBoardTest : public testing::Test {
 protected:
  WaitBoardTest() {
    std::string folder = testing::TempDir() + "wait_board_XXXXXX";
    folder_ = ::mkdtemp(folder.data());
  }
  ~WaitBoardTest() override { std::filesystem::remove_all(folder_); }

  std::string path_of(const std::string& name) const { return (folder_ / name).string(); }
  std::filesystem::path folder_;
};

TEST_F(WaitBoardTest, WhatOneSideCountsTheOtherReads) {
  const std::string path = path_of("waits");
  const WaitBoard made = WaitBoard::make(path).value();
  EXPECT_EQ(made.read().looks, (std::array<std::uint64_t, kWaits>{}));
  WaitBoard opened = WaitBoard::open(path).value();
  WaitCounts counts;
  counts.looks[static_cast<std::size_t>(Wait::kCredit)] = 2;
  counts.looks[static_cast<std::size_t>(Wait::kComputing)] = 1;
  counts.sent_bytes = 100;
  counts.resent_bytes = 10;
  counts.wasted_bytes = 1;
  opened.add(counts);
  opened.add(counts);
  const WaitCounts read = made.read();
  EXPECT_EQ(read.looks, (std::array<std::uint64_t, kWaits>{0, 4, 0, 0, 0, 2}));
  EXPECT_EQ(read.sent_bytes, 200U);
  EXPECT_EQ(read.resent_bytes, 20U);
  EXPECT_EQ(read.wasted_bytes, 2U);
}

TEST_F(WaitBoardTest, OtherFilesAreRefused) {
  EXPECT_FALSE(WaitBoard::open(path_of("missing")).ok());
  EXPECT_FALSE(WaitBoard::open(folder_.string()).ok());
  const std::string path = path_of("short");
  std::ofstream(path) << "short";
  const base::Status status = WaitBoard::open(path).status();
  EXPECT_NE(status.message().find("spillway lab"), std::string::npos) << status.message();
}

// Another user may have placed the link, or may write to the file.
TEST_F(WaitBoardTest, WhatOthersMayHavePlantedIsRefused) {
  const std::string path = path_of("waits");
  const std::string link = path_of("link");
  ASSERT_TRUE(WaitBoard::make(path).ok());
  std::filesystem::create_symlink(path, link);
  EXPECT_FALSE(WaitBoard::open(link).ok());
  WaitBoard::make(link).value().add({.sent_bytes = 7});  // replaces the link, not its target
  EXPECT_EQ(WaitBoard::open(path).value().read().sent_bytes, 0U);
  EXPECT_EQ(WaitBoard::open(link).value().read().sent_bytes, 7U);
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  EXPECT_FALSE(WaitBoard::open(path).ok());
}

TEST(WaitBoard, EveryWaitHasItsOwnName) {
  for (std::size_t a = 0; a < kWaits; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_NE(wait_name(static_cast<Wait>(a)), wait_name(static_cast<Wait>(b)));
    }
  }
}

}  // namespace
}  // namespace spillway::net
