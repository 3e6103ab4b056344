// SPDX-License-Identifier: Apache-2.0
#include "lab/output.h"

#include <gtest/gtest.h>

namespace spillway::lab {
namespace {

TEST(LinePrefixer, WaitsForTheEndOfALine) {
  LinePrefixer lines("[0] ");
  EXPECT_EQ(lines.feed("one\ntw"), "[0] one\n");
  EXPECT_EQ(lines.feed("o"), "");
  EXPECT_EQ(lines.feed("\n\n"), "[0] two\n[0] \n");
}

TEST(LinePrefixer, EndsALineThatHasNoEnd) {
  LinePrefixer lines("[0] ");
  EXPECT_EQ(lines.feed("left"), "");
  EXPECT_EQ(lines.finish(), "[0] left\n");
  EXPECT_EQ(lines.finish(), "");
}

TEST(LinePrefixer, GivesOutLongLinesInPieces) {
  LinePrefixer lines("> ");
  const std::string out = lines.feed(std::string(LinePrefixer::kMaxLine + 10, 'x'));
  EXPECT_EQ(out, "> " + std::string(LinePrefixer::kMaxLine, 'x') + "\n");
  EXPECT_EQ(lines.feed("\n"), "> xxxxxxxxxx\n");
}

TEST(LinePrefixer, ALineOfExactlyTheLimitIsFollowedByItsEnd) {
  LinePrefixer lines("");
  const std::string line = std::string(LinePrefixer::kMaxLine, 'x') + "\n";
  EXPECT_EQ(lines.feed(line), line);
}

}  // namespace
}  // namespace spillway::lab
