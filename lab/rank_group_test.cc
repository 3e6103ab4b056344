// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "lab/rank_environment.h"
#include "lab/rank_group.h"

namespace spillway::lab {

namespace {

// A grace period that commands which end by themselves never use up.
constexpr base::Duration kLongGrace = base::seconds(3600);

class RankGroupTest : public testing::Test {
 protected:
  RankLaunch shell(const std::string& script) {
    RankLaunch launch;
    launch.host = "host0";
    launch.argv = {"/bin/sh", "-c", script};
    launch.environment = current_environment();
    return launch;
  }

  static std::string text_of(int file) {
    std::string text(4096, '\0');
    const ssize_t size = ::pread(file, text.data(), text.size(), 0);
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text;
  }

  BlockedSignals blocked_;
  net::UniqueFd out_{::memfd_create("out", MFD_CLOEXEC)};
  net::UniqueFd err_{::memfd_create("err", MFD_CLOEXEC)};
  OutputFds output_{out_.get(), err_.get(), true};
};

TEST_F(RankGroupTest, MarksOutputAndKeepsExitCodes) {
  RankGroup group(output_, kLongGrace);
  ASSERT_TRUE(group.start(shell("echo one; echo bad >&2")).ok());
  ASSERT_TRUE(group.start(shell("printf two; exit 3")).ok());
  const GroupOutcome outcome = group.run(-1, false);
  EXPECT_EQ(outcome.exit_codes, (std::vector<int>{0, 3}));
  EXPECT_EQ(outcome.interrupted_by, 0);
  EXPECT_NE(text_of(out_.get()).find("[0] one\n"), std::string::npos);
  EXPECT_NE(text_of(out_.get()).find("[1] two\n"), std::string::npos);
  EXPECT_NE(text_of(err_.get()).find("[0] bad\n"), std::string::npos);
  EXPECT_NE(text_of(err_.get()).find("rank 1 on host0 exited with 3"), std::string::npos);
}

TEST_F(RankGroupTest, ProcessorTimeIsThatOfAllCommandsAndTheirChildren) {
  RankGroup group(output_, kLongGrace);
  const std::string burn = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
  ASSERT_TRUE(group.start(shell(burn)).ok());
  ASSERT_TRUE(group.start(shell("(" + burn + "); true")).ok());
  const base::Duration both = group.run(-1, false).cpu;
  EXPECT_GT(both, base::milliseconds(2));
  RankGroup idle(output_, kLongGrace);
  ASSERT_TRUE(idle.start(shell("true")).ok());
  EXPECT_LT(idle.run(-1, false).cpu, both);
}

TEST_F(RankGroupTest, AFailureEndsTheOthersAfterTheirGrace) {
  RankGroup group(output_, base::milliseconds(10));
  ASSERT_TRUE(group.start(shell("sleep 600")).ok());
  ASSERT_TRUE(group.start(shell("exit 1")).ok());
  const GroupOutcome outcome = group.run(-1, false);
  EXPECT_EQ(outcome.exit_codes, (std::vector<int>{128 + SIGTERM, 1}));
  EXPECT_EQ(outcome.first_failed, 1U);
  EXPECT_FALSE(outcome.over_limit);
}

TEST_F(RankGroupTest, ALimitEndsCommandsThatHang) {
  RankGroup group(output_, kLongGrace, base::milliseconds(10));
  ASSERT_TRUE(group.start(shell("sleep 600")).ok());
  ASSERT_TRUE(group.start(shell("sleep 600")).ok());
  const GroupOutcome outcome = group.run(-1, false);
  EXPECT_EQ(outcome.exit_codes, (std::vector<int>{128 + SIGTERM, 128 + SIGTERM}));
  EXPECT_TRUE(outcome.over_limit);
  EXPECT_EQ(outcome.interrupted_by, 0);
  EXPECT_EQ(outcome.first_failed, std::nullopt);
  EXPECT_NE(text_of(err_.get()).find("did not end within 0.01 s"), std::string::npos);
}

TEST_F(RankGroupTest, CommandsThatEndInTimeDoNotSeeTheLimit) {
  RankGroup group(output_, kLongGrace, kLongGrace);
  ASSERT_TRUE(group.start(shell("true")).ok());
  const GroupOutcome outcome = group.run(-1, false);
  EXPECT_EQ(outcome.exit_codes, std::vector<int>{0});
  EXPECT_FALSE(outcome.over_limit);
}

TEST_F(RankGroupTest, ASignalIsPassedOn) {
  RankGroup group(output_, kLongGrace);
  // Not `sleep & wait`: a shell's background commands ignore SIGINT and would outlive the test.
  ASSERT_TRUE(group.start(shell("trap 'exit 7' INT; while true; do sleep 0.01; done")).ok());
  ASSERT_EQ(::kill(::getpid(), SIGINT), 0);  // blocked, so it waits for run()
  const GroupOutcome outcome = group.run(-1, false);
  EXPECT_EQ(outcome.interrupted_by, SIGINT);
  EXPECT_NE(outcome.exit_codes.front(), 0);
}

TEST_F(RankGroupTest, ACommandThatIsNotThereIsNamed) {
  RankGroup group(output_, kLongGrace);
  RankLaunch launch = shell("");
  launch.argv = {"no-such-command-anywhere"};
  const base::Status status = group.start(launch);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("no-such-command-anywhere"), std::string::npos);
  EXPECT_NE(status.message().find("host0"), std::string::npos);
}

}  // namespace

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
