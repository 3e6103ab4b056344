// SPDX-License-Identifier: Apache-2.0
#include "observe/log.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "base/version.h"
#include "observe/observe_testing.h"

namespace spillway::observe {
namespace {

TEST(DebugLog, ALineSaysWhoWhereAndWhat) {
  const CapturedLog log("INFO", "NET");
  {
    const ScopedLogRank rank(3);
    log_info(LogSubsystem::kNet, "{} paths", 8);
  }
  log_warn("no rank here");
  const std::string who = fmt::format("{}:{}:{}", host_name(), ::getpid(), ::syscall(SYS_gettid));
  EXPECT_EQ(log.lines(),
            (std::vector<std::string>{who + " [-] SPILLWAY VERSION spillway " + base::kVersion,
                                      who + " [3] SPILLWAY INFO 8 paths",
                                      who + " [-] SPILLWAY WARN no rank here"}));
}

TEST(DebugLog, WithoutVariablesThereAreWarningsAndNothingElse) {
  const CapturedLog log;
  log_info(LogSubsystem::kInit, "quiet");
  log_trace(LogSubsystem::kInit, "quieter");
  EXPECT_EQ(log.text(), "");
  log_warn("heard");
  EXPECT_TRUE(log.says("SPILLWAY WARN heard\n"));
}

TEST(DebugLog, LevelsIncludeThoseBefore) {
  const auto speaks = [](const std::string& level, LogLevel which) {
    const LogConfig config = *log_config({{"SPILLWAY_DEBUG", level}});
    return config.subsystems[static_cast<std::size_t>(which)] != 0;
  };
  EXPECT_FALSE(speaks("NONE", LogLevel::kWarn));
  EXPECT_FALSE(speaks("NONE", LogLevel::kVersion));
  EXPECT_TRUE(speaks("VERSION", LogLevel::kVersion));
  EXPECT_FALSE(speaks("VERSION", LogLevel::kWarn));
  EXPECT_TRUE(speaks("warn", LogLevel::kWarn));
  EXPECT_FALSE(speaks("WARN", LogLevel::kInfo));
  EXPECT_TRUE(speaks("INFO", LogLevel::kInfo));
  EXPECT_FALSE(speaks("INFO", LogLevel::kTrace));
  EXPECT_TRUE(speaks("TRACE", LogLevel::kTrace));
}

TEST(DebugLog, SubsystemsAreChosenOrExcluded) {
  const auto speaks = [](const std::string& chosen, LogSubsystem subsystem) {
    const LogConfig config =
        *log_config({{"SPILLWAY_DEBUG", "INFO"}, {"SPILLWAY_DEBUG_SUBSYS", chosen}});
    const auto info = config.subsystems[static_cast<std::size_t>(LogLevel::kInfo)];
    return (info & static_cast<std::uint32_t>(subsystem)) != 0;
  };
  EXPECT_TRUE(speaks("", LogSubsystem::kInit));
  EXPECT_FALSE(speaks("", LogSubsystem::kNet));
  EXPECT_TRUE(speaks("net,COLL", LogSubsystem::kNet));
  EXPECT_TRUE(speaks("net,COLL", LogSubsystem::kColl));
  EXPECT_FALSE(speaks("net,COLL", LogSubsystem::kInit));
  EXPECT_TRUE(speaks("ALL", LogSubsystem::kCodec));
  EXPECT_FALSE(speaks("^NET,CODEC", LogSubsystem::kNet));
  EXPECT_FALSE(speaks("^NET,CODEC", LogSubsystem::kCodec));
  EXPECT_TRUE(speaks("^NET,CODEC", LogSubsystem::kColl));
}

TEST(DebugLog, VariablesThatMakeNoSenseAreRefused) {
  EXPECT_EQ(log_config({{"SPILLWAY_DEBUG", "LOUD"}}).status().message(),
            "SPILLWAY_DEBUG is 'LOUD': it must be NONE, VERSION, WARN, INFO or TRACE");
  const base::Status subsystems = start_log({{"SPILLWAY_DEBUG_SUBSYS", "NET,MOON"}});
  EXPECT_TRUE(subsystems.message().starts_with(
      "SPILLWAY_DEBUG_SUBSYS is 'NET,MOON': it must be a list of INIT, BOOTSTRAP"))
      << subsystems.message();
}

TEST(DebugLog, AFileThatCannotBeOpenedLeavesStandardError) {
  testing::internal::CaptureStderr();
  apply_log_config(*log_config({{"SPILLWAY_DEBUG_FILE", "/nowhere/at/all"}}));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("SPILLWAY_DEBUG_FILE: cannot write /nowhere/at/all"), std::string::npos);
}

TEST(DebugLog, AMessageStaysOnOneLineAndIsCut) {
  const CapturedLog log;
  log_warn("two\nlines");
  log_warn("{}", std::string(10'000, 'x'));
  log_warn("rank \x1b[2J is gone");
  ASSERT_EQ(log.lines().size(), 3U);
  EXPECT_TRUE(log.lines()[2].ends_with("rank \\x1b[2J is gone"));
  EXPECT_TRUE(log.lines()[0].ends_with("two lines"));
  EXPECT_EQ(log.lines()[1].size(), kMaxLineBytes - 1);
}

TEST(DebugLog, LinesOfSeveralThreadsDoNotMix) {
  const CapturedLog log("INFO", "COLL");
  constexpr int kLines = 200;
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    threads.emplace_back([rank] {
      const ScopedLogRank named(rank);
      for (int i = 0; i < kLines; ++i) {
        log_info(LogSubsystem::kColl, "operation {} of rank {}.", i, rank);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const auto lines = log.lines();
  EXPECT_EQ(lines.size(), 4U * kLines + 1);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::string rank = lines[i].substr(lines[i].find('[') + 1, 1);
    EXPECT_TRUE(lines[i].ends_with(" of rank " + rank + ".")) << lines[i];
  }
}

TEST(PathPattern, FillsInWhatIsKnown) {
  const Identity identity{.communicator = "tensor/parallel", .rank = 7};
  const std::string pid = std::to_string(::getpid());
  EXPECT_EQ(expand_path("/x/%h.%p.%r.%c%%.log", &identity),
            "/x/" + host_name() + "." + pid + ".7.tensor_parallel%.log");
  EXPECT_EQ(expand_path("%r%c%q%", nullptr), "%r%c%q%");
}

}  // namespace
}  // namespace spillway::observe
