// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "lab/compare/progress_log.h"

namespace spillway::compare {
namespace {

ProgressLog read(std::string_view text) {
  ProgressLogReader reader;
  reader.feed(text);
  reader.finish();
  return reader.log();
}

constexpr std::string_view kSample =
    R"({"event":"step","step":1,"seconds":0.5,"step_ms":80.5,"loss":2.25,"rank":0}
{"event":"evaluation","step":1,"seconds":0.75,"accuracy":0.5}
{"event":"hello","step":"not ours"}

{"event":"step","step":2,"seconds":1}
{"event":"end","seconds":2}
)";

void expect_sample(const ProgressLog& log) {
  ASSERT_EQ(log.steps.size(), 2U);
  EXPECT_EQ(log.steps[0].step, 1U);
  EXPECT_EQ(log.steps[0].seconds, 0.5);
  EXPECT_EQ(log.steps[0].step_ms, 80.5);
  EXPECT_EQ(log.steps[0].loss, 2.25);
  EXPECT_FALSE(log.steps[1].step_ms.has_value());
  ASSERT_EQ(log.evaluations.size(), 1U);
  EXPECT_EQ(log.evaluations[0].accuracy, 0.5);
  EXPECT_TRUE(log.has_ended);
  EXPECT_EQ(log.bad_lines, 0U);
}

TEST(ProgressLog, ReadsStepsEvaluationsAndTheEnd) {
  expect_sample(read(kSample));
}

TEST(ProgressLog, HowTheBytesComeDoesNotMatter) {
  for (const std::size_t size : {1U, 2U, 7U, 64U}) {
    ProgressLogReader reader;
    for (std::size_t i = 0; i < kSample.size(); i += size) {
      reader.feed(kSample.substr(i, size));
    }
    reader.finish();
    expect_sample(reader.log());
  }
}

TEST(ProgressLog, ALineIsReadWhenItIsComplete) {
  ProgressLogReader reader;
  reader.feed(R"({"event":"end")");
  EXPECT_FALSE(reader.log().has_ended);
  EXPECT_EQ(reader.log().bad_lines, 0U);
  reader.feed("}");
  EXPECT_FALSE(reader.log().has_ended);
  reader.finish();
  EXPECT_TRUE(reader.log().has_ended);
}

TEST(ProgressLog, BadLinesAreCountedAndChangeNothing) {
  const std::vector<std::string> bad = {
      "hello",
      "{",
      "[]",
      "7",
      "null",
      "\"event\"",
      "{}",
      R"({"event":7})",
      R"({"event":null,"step":1})",
      R"({"event":"step"})",
      R"({"event":"step","step":-1,"seconds":1})",
      R"({"event":"step","step":1.5,"seconds":1})",
      R"({"event":"step","step":"1","seconds":1})",
      R"({"event":"step","step":1,"seconds":-1})",
      R"({"event":"step","step":1,"seconds":1e999})",
      R"({"event":"step","step":1,"seconds":1,"step_ms":-2})",
      R"({"event":"step","step":1,"seconds":1,"step_ms":"x"})",
      R"({"event":"step","step":1,"seconds":1,"loss":NaN})",
      R"({"event":"evaluation","step":1,"seconds":1})",
      R"({"event":"evaluation","step":1,"seconds":1,"accuracy":81})",
      R"({"event":"evaluation","step":1,"seconds":1,"accuracy":-0.1})",
      std::string("{\"event\":\"end\0\"}", 16),
      "\xFF\xFE",
      std::string(1000, '['),
  };
  for (const std::string& line : bad) {
    const ProgressLog log = read(line + "\n");
    EXPECT_EQ(log.bad_lines, 1U) << line;
    EXPECT_TRUE(log.is_empty()) << line;
  }
  std::string all(kSample);
  for (const std::string& line : bad) {
    all = line + "\n" + all;
  }
  EXPECT_EQ(read(all).bad_lines, bad.size());
  EXPECT_EQ(read(all).steps.size(), 2U);
}

TEST(ProgressLog, ReadsWhatTheLabSawOfAScript) {
  EXPECT_FALSE(read(kSample).has_group);
  EXPECT_EQ(read(kSample).hook, HookUse::kNoModel);
  const ProgressLog log = read(R"({"event": "group", "backend": "gloo", "asked": "nccl"}
{"event": "hook", "hook": "fp16", "by": "lab"}
)");
  EXPECT_TRUE(log.has_group);
  EXPECT_EQ(log.hook, HookUse::kUsed);
  EXPECT_EQ(log.bad_lines, 0U);
  EXPECT_EQ(read(R"({"event":"hook","by":"script"})").hook, HookUse::kScriptHasOwn);
  EXPECT_EQ(read(R"({"event":"hook","by":[1]})").hook, HookUse::kScriptHasOwn);
}

TEST(ProgressLog, ALossThatIsNullIsNone) {
  const ProgressLog log = read(R"({"event":"step","step":1,"seconds":1,"loss":null})");
  ASSERT_EQ(log.steps.size(), 1U);
  EXPECT_FALSE(log.steps[0].loss.has_value());
}

TEST(ProgressLog, ALineWithoutAnEndTakesNoMemoryAndCountsOnce) {
  ProgressLogReader reader;
  for (int i = 0; i < 100; ++i) {
    reader.feed(std::string(kMaxLineBytes / 8, 'x'));
  }
  reader.feed("\n");
  reader.feed(kSample);
  EXPECT_EQ(reader.log().bad_lines, 1U);
  EXPECT_EQ(reader.log().steps.size(), 2U);
}

TEST(ProgressLog, PointsBeyondTheLimitAreCounted) {
  ProgressLogReader reader;
  std::string thousand;
  for (int i = 0; i < 1000; ++i) {
    thousand += "{\"event\":\"step\",\"step\":1,\"seconds\":1}\n";
  }
  for (std::size_t i = 0; i < kMaxPoints / 1000; ++i) {
    reader.feed(thousand);
  }
  EXPECT_EQ(reader.log().left_out, 0U);
  reader.feed(thousand);
  EXPECT_EQ(reader.log().steps.size(), kMaxPoints);
  EXPECT_EQ(reader.log().left_out, 1000U);
}

TEST(ProgressLog, GarbageIsNoHarm) {
  std::mt19937 random(7);
  std::string text(kSample);
  for (int round = 0; round < 2000; ++round) {
    std::string changed = text;
    for (int i = 0; i < 4; ++i) {
      changed[random() % changed.size()] = static_cast<char>(random());
    }
    const ProgressLog log = read(changed);
    EXPECT_LE(log.steps.size(), 6U);
    EXPECT_LE(log.bad_lines, 10U);
  }
}

TEST(ProgressLog, AnEmptyLogIsEmpty) {
  EXPECT_TRUE(read("").is_empty());
  EXPECT_TRUE(read("\n \r\n").is_empty());
  EXPECT_EQ(read("\n \r\n").bad_lines, 0U);
}

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
  write(std::string(2 * LogFollower::kMaxBytesPerRead, '\n') + "{\"event\":\"end\"}\n");
  LogFollower follower(path());
  EXPECT_TRUE(follower.look());
  EXPECT_FALSE(follower.log().has_ended);
  follower.finish();
  EXPECT_TRUE(follower.log().has_ended);
}

}  // namespace

}  // namespace spillway::compare
