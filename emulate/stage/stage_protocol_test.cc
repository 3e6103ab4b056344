// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/stage_protocol.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "emulate/stage/stage_server.h"
#include "harness/slowdown.h"

namespace spillway::emulate {
namespace {

class TenMicroseconds final : public StageDurations {
 public:
  base::Result<base::Duration> collective(const StagedCollective&) override {
    return base::microseconds(10);
  }
  base::Result<base::Duration> message(std::uint32_t, std::uint32_t, std::uint64_t) override {
    return base::microseconds(10);
  }
};

constexpr StageTerms kTerms{.is_strict = true, .memory_bytes = 4096};

struct Spoken {
  TenMicroseconds durations;
  Stage stage{{.world = 4, .real = {0, 2}, .learns_spread = false}, durations};
  StageProtocol protocol{stage, kTerms};

  // Returns all lines that follow, with their connections.
  std::string after(StageProtocol::Connection from, const std::string& line) {
    [[maybe_unused]] const base::Status status = protocol.line(from, line);
    std::string said;
    for (const auto& [connection, text] : protocol.take_lines()) {
      said += std::to_string(connection) + " " + text;
    }
    return said;
  }
};

TEST(StageProtocol, RanksEnterCallAndAreTold) {
  Spoken spoken;
  EXPECT_EQ(spoken.after(7, R"({"enter": 0})"),
            "7 {\"memory\":4096,\"real\":[0,2],\"strict\":true,\"waits\":false,\"world\":4}\n");
  spoken.after(8, R"({"enter": 2})");
  for (const StageProtocol::Connection each : {7U, 8U}) {
    EXPECT_EQ(spoken.after(each, R"({"group": 0, "name": "world", "ranks": []})"), "");
  }
  const std::string call =
      R"({"call": "all_reduce", "group": 0, "ticket": 5, "bytes": 64, "root": 0, "at": 1000})";
  EXPECT_EQ(spoken.after(7, call), "");
  EXPECT_EQ(spoken.after(8, call),
            "7 {\"ticket\": 5, \"end\": 11000}\n8 {\"ticket\": 5, \"end\": 11000}\n");
}

TEST(StageProtocol, AConnectionThatEndsIsARankThatDied) {
  Spoken spoken;
  spoken.after(7, R"({"enter": 0})");
  spoken.after(8, R"({"enter": 2})");
  spoken.after(7, R"({"group": 3, "name": "world", "ranks": []})");
  spoken.after(7,
               R"({"call": "barrier", "group": 3, "ticket": 1, "bytes": 0, "root": 0, "at": 1})");
  spoken.protocol.closed(8);
  const auto lines = spoken.protocol.take_lines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].second.find("rank 2 has died"), std::string::npos);
  EXPECT_NE(lines[0].second.find("peer-failed"), std::string::npos);
}

TEST(StageProtocol, WhatMakesNoSenseEndsTheConnectionWithASentence) {
  for (const char* line : {"", "[]", "{}", R"({"enter": 1})", R"({"enter": 0.5})",
                           R"({"leave": 1})", R"({"call": "all_reduce"})"}) {
    Spoken spoken;
    EXPECT_FALSE(spoken.protocol.line(1, line).ok()) << line;
    EXPECT_EQ(spoken.protocol.take_lines().size(), 1U) << line;
  }
  for (const char* line :
       {R"({"call": "all_reduce", "group": 9, "ticket": 1, "bytes": 1, "root": 0, "at": 1})",
        R"({"call": 3, "group": 0, "ticket": 1, "bytes": 1, "root": 0, "at": 1})",
        R"({"call": "all_reduce", "group": 0, "ticket": 1, "bytes": 1, "root": 0, "at": -1})",
        R"({"send": 1, "group": 0, "ticket": 1, "bytes": 1, "at": 99999999999999999999})",
        R"({"group": 0, "name": "x", "ranks": [-1]})", R"({"group": 0, "name": "x", "ranks": [9]})",
        R"({"waited": [1]})", R"({"waited": ["a", 2]})", R"({"enter": 0})"}) {
    Spoken spoken;
    spoken.after(1, R"({"enter": 0})");
    spoken.after(1, R"({"group": 0, "name": "world", "ranks": []})");
    EXPECT_FALSE(spoken.protocol.line(1, line).ok()) << line;
  }
}

TEST(StageServer, AnswersWhoAsksAndGoesWithItsSocket) {
  Spoken spoken;
  const base::Duration patience(harness::patience(harness::kHangs).count());
  const std::string path =
      (std::filesystem::temp_directory_path() / ("stage-test-" + std::to_string(::getpid())))
          .string();
  {
    const auto server = StageServer::start(path, spoken.protocol, spoken.stage);
    ASSERT_TRUE(server.ok()) << server.status().message();
    const auto asked = ask_stage(path, patience);
    ASSERT_TRUE(asked.ok()) << asked.status().message();
    EXPECT_EQ(asked->world, 4U);
    EXPECT_EQ(asked->real, (std::vector<std::uint32_t>{0, 2}));
  }
  EXPECT_FALSE(ask_stage(path, patience).ok());
}

}  // namespace
}  // namespace spillway::emulate
