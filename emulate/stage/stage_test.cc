// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/stage.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <numeric>

#include "emulate/emulate_testing.h"
#include "emulate/simulate/graph_run.h"
#include "emulate/stage/stage_protocol.h"
#include "harness/slowdown.h"

namespace spillway::emulate {
namespace {

base::Instant us(std::int64_t microseconds) {
  return base::Instant(base::microseconds(microseconds));
}

// Every collective takes 100 us plus 1 us per KiB, every message 10 us.
class PlainDurations final : public StageDurations {
 public:
  base::Result<base::Duration> collective(const StagedCollective& collective) override {
    if (collective.kind == CollectiveKind::kScatter) {
      return base::invalid_argument("no scatters here");
    }
    asked = collective.bytes;
    was_behind = collective.is_behind;
    return base::microseconds(100 + static_cast<std::int64_t>(collective.bytes / 1024));
  }
  base::Result<base::Duration> message(std::uint32_t, std::uint32_t, std::uint64_t) override {
    return base::microseconds(10);
  }
  std::uint64_t asked = 0;
  bool was_behind = false;
};

struct FourRankStage {
  explicit FourRankStage(StageConfig config = {.world = 4,
                                               .real = {1, 2},
                                               .patience = base::seconds(1)})
      : stage(config, durations) {
    std::vector<std::uint32_t> ranks(config.world);
    std::iota(ranks.begin(), ranks.end(), 0U);
    all_ranks = *stage.group("world", ranks);
  }
  void call(std::uint32_t rank, std::int64_t at, std::uint64_t bytes = 0,
            CollectiveKind kind = CollectiveKind::kAllReduce) {
    StageCall call;
    call.ticket = 100 * rank + tickets++;
    call.kind = kind;
    call.bytes = bytes;
    call.at = us(at);
    stage.call(rank, all_ranks, call);
  }
  void message(std::uint32_t rank, StageMessage::End end, std::uint32_t peer, std::int64_t at) {
    stage.message(rank, all_ranks, {tickets++, end, peer, 0, 64, us(at)});
  }
  // Returns the only failure among the replies, of which there are `count`.
  std::string failure(std::size_t count) {
    const std::vector<StageReply> replies = stage.take_replies();
    EXPECT_EQ(replies.size(), count);
    for (const StageReply& reply : replies) {
      EXPECT_EQ(reply.status.message(), replies.front().status.message());
    }
    return replies.empty() ? "" : replies.front().status.message();
  }

  PlainDurations durations;
  Stage stage;
  std::uint32_t all_ranks = 0;
  std::uint64_t tickets = 0;
};

TEST(Stage, ACollectiveEndsItsDurationAfterTheLastRealMemberCame) {
  FourRankStage staged;
  staged.call(1, 1000, 2048);
  EXPECT_TRUE(staged.stage.take_replies().empty());
  staged.call(2, 1050, 2048);
  const std::vector<StageReply> replies = staged.stage.take_replies();
  ASSERT_EQ(replies.size(), 2U);
  for (const StageReply& reply : replies) {
    EXPECT_TRUE(reply.status.ok());
    EXPECT_GE(reply.end, us(1152));
  }
  EXPECT_EQ(replies[0].end, replies[1].end);
  EXPECT_EQ(staged.stage.totals().collectives, 1U);
}

TEST(Stage, CollectivesOfAGroupFollowEachOther) {
  FourRankStage staged({.world = 4, .real = {1}});
  staged.call(1, 1000);
  EXPECT_FALSE(staged.durations.was_behind);
  staged.call(1, 1010);
  EXPECT_TRUE(staged.durations.was_behind);
  const std::vector<StageReply> replies = staged.stage.take_replies();
  ASSERT_EQ(replies.size(), 2U);
  EXPECT_EQ(replies[0].end, us(1100));
  EXPECT_EQ(replies[1].end, us(1200));
}

TEST(Stage, MembersThatCallDifferentThingsAreNamed) {
  FourRankStage staged;
  staged.call(1, 1000, 64);
  staged.call(2, 1001, 64, CollectiveKind::kBroadcast);
  EXPECT_EQ(staged.failure(2),
            "collective 0 of group 'world': rank 1 calls all-reduce of 64 bytes, root 0, rank 2 "
            "calls broadcast of 64 bytes, root 0");
  staged.call(1, 1002, 64);  // the group stays broken, so no rank waits in it
  EXPECT_EQ(staged.stage.take_replies().size(), 1U);
}

TEST(Stage, WhoDoesNotComeIsNamedWhenPatienceEnds) {
  FourRankStage staged;
  staged.call(2, 1000);
  EXPECT_EQ(staged.stage.expire(us(2000)), us(1'001'000));
  EXPECT_TRUE(staged.stage.take_replies().empty());
  EXPECT_EQ(staged.stage.expire(us(1'001'000)), std::nullopt);
  EXPECT_EQ(staged.failure(1), "all-reduce 0 of group 'world': rank 2 arrived, rank 1 did not");
}

TEST(Stage, WhoLeavesEndsWhatOthersWaitFor) {
  FourRankStage staged;
  staged.call(2, 1000);
  staged.stage.leave(1, "has died");
  EXPECT_EQ(staged.failure(1),
            "all-reduce 0 of group 'world': rank 2 arrived, rank 1 did not: rank 1 has died");
  staged.call(2, 1001);
  EXPECT_EQ(staged.stage.take_replies().size(), 1U);
  EXPECT_EQ(staged.stage.expire(us(2000)), std::nullopt);
}

TEST(Stage, WhatHasNoDurationIsAnErrorAtAllMembers) {
  FourRankStage staged;
  staged.call(1, 1000, 64, CollectiveKind::kScatter);
  staged.call(2, 1000, 64, CollectiveKind::kScatter);
  EXPECT_EQ(staged.failure(2), "collective 0 of group 'world': no scatters here");
}

TEST(Stage, OfUnevenSizesTheMostCounts) {
  FourRankStage staged;
  for (const std::uint32_t rank : {1U, 2U}) {
    StageCall call;
    call.kind = CollectiveKind::kAllToAll;
    call.bytes = 1000 * rank;
    call.is_uneven = true;
    staged.stage.call(rank, staged.all_ranks, call);
  }
  EXPECT_EQ(staged.durations.asked, 2000U);
  EXPECT_TRUE(staged.stage.take_replies().front().status.ok());
}

TEST(Stage, MessagesWithVirtualRanksTakeTheirTimeAndNoMore) {
  FourRankStage staged;
  staged.message(1, StageMessage::End::kSend, 3, 1000);
  staged.message(1, StageMessage::End::kReceive, 0, 2000);
  const std::vector<StageReply> replies = staged.stage.take_replies();
  ASSERT_EQ(replies.size(), 2U);
  EXPECT_EQ(replies[0].end, us(1010));
  EXPECT_EQ(replies[1].end, us(2010));
}

TEST(Stage, AReceiveFromARealRankEndsWhenItsMessageCame) {
  FourRankStage staged;
  staged.message(2, StageMessage::End::kReceive, 1, 1000);
  EXPECT_TRUE(staged.stage.take_replies().empty());
  staged.message(1, StageMessage::End::kSend, 2, 1500);
  std::vector<StageReply> replies = staged.stage.take_replies();
  ASSERT_EQ(replies.size(), 2U);
  EXPECT_EQ(replies[1].rank, 2U);
  EXPECT_EQ(replies[1].end, us(1510));

  staged.message(2, StageMessage::End::kReceive, 1, 2000);
  staged.stage.expire(us(1'002'000));
  EXPECT_EQ(staged.failure(1),
            "message 1 from rank 1 to rank 2 with tag 0 in group 'world': rank 2 "
            "arrived, rank 1 did not");
}

TEST(Stage, ASlowRankHoldsUpTheOthersUntilTheyHaveWaited) {
  FourRankStage staged({.world = 4, .real = {1}, .slow = {{3, 1.5}}});
  staged.call(1, 1000);
  staged.call(1, 2000);  // after 1000 us of computing, rank 3 is 500 us behind
  std::vector<StageReply> replies = staged.stage.take_replies();
  ASSERT_EQ(replies.size(), 2U);
  EXPECT_EQ(replies[1].end, us(2600));
  staged.stage.waited(1, us(2000), us(2600));  // now it has caught up
  staged.call(1, 3000);
  EXPECT_EQ(staged.stage.take_replies().front().end, us(3300));
}

TEST(Stage, TheSameSeedDrawsTheSameArrivals) {
  const auto ends = [](std::uint64_t seed) {
    FourRankStage staged({.world = 5, .real = {1, 2}, .seed = seed});
    std::vector<std::int64_t> made;
    for (std::int64_t i = 1; i <= 50; ++i) {
      staged.call(1, 10'000 * i);
      staged.call(2, 10'000 * i + 7 * i * i % 90);
      made.push_back(staged.stage.take_replies().front().end.since_zero().count());
    }
    return made;
  };
  EXPECT_EQ(ends(1), ends(1));
  EXPECT_NE(ends(1), ends(2));
}

TEST(Stage, RemembersWhenMostWasUnderWay) {
  FourRankStage staged;
  const auto call = [&staged](std::int64_t at, std::uint64_t bytes) {
    staged.call(1, at, bytes);
    staged.call(2, at, bytes);
  };
  call(0, 1024);
  call(10, 2048);
  call(5000, 2500);  // more than either, less than both
  const CollectiveShape first{CollectiveKind::kAllReduce, 4, 1, 1024};
  const CollectiveShape second{CollectiveKind::kAllReduce, 4, 1, 2048};
  EXPECT_EQ(staged.stage.totals().at_once, (std::vector<CollectiveShape>{first, second}));
  EXPECT_EQ(staged.stage.totals().shapes.at(second), 1U);
}

TEST(Stage, RefusesWhatCannotBe) {
  EXPECT_FALSE(validate_stage({.world = 4, .real = {}}).ok());
  EXPECT_FALSE(validate_stage({.world = 4, .real = {4}}).ok());
  EXPECT_FALSE(validate_stage({.world = 4, .real = {1, 1}}).ok());
  EXPECT_FALSE(validate_stage({.world = 4, .real = {1}, .slow = {{1, 2.0}}}).ok());
  FourRankStage staged;
  EXPECT_FALSE(staged.stage.group("odd", {2, 1}).ok());
  EXPECT_FALSE(staged.stage.group("odd", {2, 9}).ok());
  EXPECT_EQ(*staged.stage.group("world", {0, 1, 2, 3}), staged.all_ranks);
  staged.call(3, 1000);  // a virtual rank
  staged.message(1, StageMessage::End::kSend, 1, 1000);
  for (const StageReply& reply : staged.stage.take_replies()) {
    EXPECT_FALSE(reply.status.ok());
  }
}

TEST(TraceArrivals, SayWhenVirtualRanksComeAndSend) {
  // Rank 0, which is virtual, computes for 500 us, sends, and arrives at the all-reduce; rank 1
  // computes for 200 us.
  const auto all_reduce = [](std::uint64_t dep) {
    return collective_node(3, CollectiveKind::kAllReduce, 4096, "", {dep});
  };
  const World world = world_of({{compute_node(1, {}, base::microseconds(500)),
                                 message_node(2, NodeKind::kSend, 1, 64, {1}), all_reduce(2)},
                                {compute_node(1, {}, base::microseconds(200)),
                                 message_node(2, NodeKind::kReceive, 0, 64), all_reduce(1)}});
  const Matches matches(world);
  RecordedModel model;
  GraphRunOptions options;
  options.keeps_times = true;
  const GraphRunResult run = GraphRun(world, matches, model, options).run();
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  const TraceArrivals arrivals(world, run, {1});
  EXPECT_EQ(arrivals.behind({0, 1}, CollectiveKind::kAllReduce, 4096, 7), base::microseconds(300));
  EXPECT_EQ(arrivals.behind({0, 1}, CollectiveKind::kAllReduce, 8, 0), std::nullopt);
  EXPECT_EQ(arrivals.sent_behind(0, 1, 0), base::microseconds(500));
  EXPECT_EQ(arrivals.sent_behind(1, 0, 0), std::nullopt);

  PlainDurations durations;
  Stage stage({.world = 2, .real = {1}}, durations, &arrivals);
  const std::uint32_t both = *stage.group("both", {0, 1});
  StageCall call;
  call.bytes = 4096;
  call.at = us(1000);
  stage.call(1, both, call);
  stage.message(1, both, {1, StageMessage::End::kReceive, 0, 0, 64, us(2000)});
  const std::vector<StageReply> replies = stage.take_replies();
  ASSERT_EQ(replies.size(), 2U);
  EXPECT_EQ(replies[0].end, us(1000 + 300 + 104));
  EXPECT_EQ(replies[1].end, us(2000 + 500 + 10));
}

TEST(SpreadProfile, TheLatestOfManyComesLaterThanOfFew) {
  SpreadProfile profile;
  EXPECT_EQ(profile.latest_of(1000, 0.5), base::Duration());
  for (std::int64_t i = 0; i < 100; ++i) {
    const std::vector<base::Instant> arrivals = {us(1000), us(1000 + i % 10)};
    EXPECT_EQ(profile.learn(arrivals), us(1000) + base::nanoseconds(500 * (i % 10)));
  }
  const base::Duration of_many = profile.latest_of(1000, 0.5);
  EXPECT_NEAR(base::microseconds_of(profile.latest_of(1, 0.5)), 0.0, 0.01);
  EXPECT_GT(of_many, base::microseconds(10));
  EXPECT_LT(of_many, base::microseconds(30));
  const std::vector<base::Instant> slow_start = {us(1000), us(900'000)};
  profile.learn(slow_start);
  EXPECT_LT(profile.latest_of(1000, 0.5), base::microseconds(30));
}

TEST(SpreadProfile, QuantilesAreThoseOfTheNormalDistribution) {
  EXPECT_NEAR(normal_quantile(0.5), 0.0, 1e-9);
  EXPECT_NEAR(normal_quantile(0.975), 1.959964, 1e-5);
  EXPECT_NEAR(normal_quantile(0.001), -3.090232, 1e-5);
}

// ------------------------------------------------------------------ the ranks' messages

class TenMicroseconds final : public StageDurations {
 public:
  base::Result<base::Duration> collective(const StagedCollective&) override {
    return base::microseconds(10);
  }
  base::Result<base::Duration> message(std::uint32_t, std::uint32_t, std::uint64_t) override {
    return base::microseconds(10);
  }
};

constexpr StageSettings kSettings{.is_strict = true, .memory_bytes = 4096};

struct StagedProtocol {
  TenMicroseconds durations;
  Stage stage{{.world = 4, .real = {0, 2}, .learns_spread = false}, durations};
  StageProtocol protocol{stage, kSettings};

  // Returns all lines that follow, with their connections.
  std::string after(StageProtocol::Connection from, const std::string& line) {
    [[maybe_unused]] const base::Status status = protocol.line(from, line);
    std::string fields;
    for (const auto& [connection, text] : protocol.take_lines()) {
      fields += std::to_string(connection) + " " + text;
    }
    return fields;
  }
};

TEST(StageProtocol, RanksEnterCallAndAreTold) {
  StagedProtocol staged;
  EXPECT_EQ(staged.after(7, R"({"enter": 0})"),
            "7 {\"memory\":4096,\"real\":[0,2],\"strict\":true,\"waits\":false,\"world\":4}\n");
  staged.after(8, R"({"enter": 2})");
  for (const StageProtocol::Connection each : {7U, 8U}) {
    EXPECT_EQ(staged.after(each, R"({"group": 0, "name": "world", "ranks": []})"), "");
  }
  const std::string call =
      R"({"call": "all_reduce", "group": 0, "ticket": 5, "bytes": 64, "root": 0, "at": 1000})";
  EXPECT_EQ(staged.after(7, call), "");
  EXPECT_EQ(staged.after(8, call),
            "7 {\"ticket\": 5, \"end\": 11000}\n8 {\"ticket\": 5, \"end\": 11000}\n");
}

TEST(StageProtocol, AConnectionThatEndsIsARankThatDied) {
  StagedProtocol staged;
  staged.after(7, R"({"enter": 0})");
  staged.after(8, R"({"enter": 2})");
  staged.after(7, R"({"group": 3, "name": "world", "ranks": []})");
  staged.after(7,
               R"({"call": "barrier", "group": 3, "ticket": 1, "bytes": 0, "root": 0, "at": 1})");
  staged.protocol.closed(8);
  const auto lines = staged.protocol.take_lines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].second.find("rank 2 has died"), std::string::npos);
  EXPECT_NE(lines[0].second.find("peer-failed"), std::string::npos);
}

TEST(StageProtocol, WhatMakesNoSenseEndsTheConnectionWithASentence) {
  for (const char* line : {"", "[]", "{}", R"({"enter": 1})", R"({"enter": 0.5})",
                           R"({"leave": 1})", R"({"call": "all_reduce"})"}) {
    StagedProtocol staged;
    EXPECT_FALSE(staged.protocol.line(1, line).ok()) << line;
    EXPECT_EQ(staged.protocol.take_lines().size(), 1U) << line;
  }
  for (const char* line :
       {R"({"call": "all_reduce", "group": 9, "ticket": 1, "bytes": 1, "root": 0, "at": 1})",
        R"({"call": 3, "group": 0, "ticket": 1, "bytes": 1, "root": 0, "at": 1})",
        R"({"call": "all_reduce", "group": 0, "ticket": 1, "bytes": 1, "root": 0, "at": -1})",
        R"({"send": 1, "group": 0, "ticket": 1, "bytes": 1, "at": 99999999999999999999})",
        R"({"group": 0, "name": "x", "ranks": [-1]})", R"({"group": 0, "name": "x", "ranks": [9]})",
        R"({"waited": [1]})", R"({"waited": ["a", 2]})", R"({"enter": 0})"}) {
    StagedProtocol staged;
    staged.after(1, R"({"enter": 0})");
    staged.after(1, R"({"group": 0, "name": "world", "ranks": []})");
    EXPECT_FALSE(staged.protocol.line(1, line).ok()) << line;
  }
}

TEST(StageServer, AnswersWhoAsksAndGoesWithItsSocket) {
  StagedProtocol staged;
  const base::Duration patience(harness::patience(harness::kHangs).count());
  const std::string path =
      (std::filesystem::temp_directory_path() / ("stage-test-" + std::to_string(::getpid())))
          .string();
  {
    const auto server = StageServer::start(path, staged.protocol, staged.stage);
    ASSERT_TRUE(server.ok()) << server.status().message();
    const auto asked = query_stage(path, patience);
    ASSERT_TRUE(asked.ok()) << asked.status().message();
    EXPECT_EQ(asked->world, 4U);
    EXPECT_EQ(asked->real, (std::vector<std::uint32_t>{0, 2}));
  }
  EXPECT_FALSE(query_stage(path, patience).ok());
}

}  // namespace

}  // namespace spillway::emulate
