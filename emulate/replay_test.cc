// SPDX-License-Identifier: Apache-2.0
#include "emulate/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "comm/job_testing.h"
#include "emulate/emulate_testing.h"
#include "emulate/llm_step.h"
#include "emulate/trace/graph.h"
#include "emulate/trace/lint.h"
#include "emulate/trace/reader.h"
#include "harness/slowdown.h"

namespace spillway::emulate {
namespace {

struct RankOutcome {
  base::Status status;
  ReplayReport report;
};

// Runs all ranks as threads of this process, over real sockets.
std::vector<RankOutcome> replay_all(const World& world,
                                    const ReplayOptions& options = {
                                        .patience = comm::testing_job::test_patience_duration()}) {
  std::vector<RankOutcome> outcomes(world.size());
  comm::testing_job::run_job(
      static_cast<std::uint16_t>(world.size()), 0, [&](comm::Communicator& all_ranks) {
        RankOutcome& outcome = outcomes[all_ranks.rank()];
        const auto groups = GroupCommunicators::make(world, all_ranks, options.patience);
        if (!groups.ok()) {
          outcome.status = groups.status();
          return;
        }
        Replay replay(world, all_ranks.rank(), *groups, options);
        const base::Result<ReplayReport> report = replay.run();
        outcome.status = report.status();
        if (report.ok()) {
          outcome.report = *report;
        }
      });
  return outcomes;
}

// Compares the smallest lateness of many waits, which other programs disturb least. A busy machine
// may disturb a whole round, so rounds are repeated.
TEST(TimerQueue, HowLateAThingIsDoesNotDependOnHowManyWait) {
  const auto least = [](std::size_t pending) {
    const std::vector<base::Duration> late =
        measure_lateness(pending, 200, base::microseconds(500));
    return *std::min_element(late.begin(), late.end());
  };
  base::Duration few;
  base::Duration many;
  harness::Limit limit;
  do {
    few = least(10);
    many = least(100'000);
  } while (many > few * 10 && !limit.is_over());
  RecordProperty("few_ns", std::to_string(few.count()));
  RecordProperty("many_ns", std::to_string(many.count()));
  EXPECT_LE(many, few * 10);
}

TEST(TimerQueue, IsWokenByOthers) {
  TimerQueue queue;
  std::thread other([&queue] { queue.notify(); });
  const base::MonotonicClock clock;
  const base::Instant latest = clock.now() + base::seconds(3600);
  queue.wait(latest);
  EXPECT_LT(clock.now(), latest);
  other.join();
}

TEST(Replay, ComputingTakesItsTimeAndCollectivesAreDone) {
  const std::vector<Node> nodes = {compute_node(1, {}, base::milliseconds(20)),
                                   collective_node(2, CollectiveKind::kAllReduce, 100'000, "", {1}),
                                   compute_node(3, {2}, base::milliseconds(10))};
  for (const RankOutcome& outcome : replay_all(world_of({nodes, nodes, nodes}))) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(outcome.report.computing, base::milliseconds(30));
    EXPECT_GE(outcome.report.length, base::milliseconds(30));
    EXPECT_EQ(outcome.report.operations, 1U);
    EXPECT_EQ(outcome.report.lateness.count, 2U);
  }
}

TEST(Replay, TimeInWhichHostAndDeviceComputeCountsOnce) {
  std::vector<Node> nodes = {compute_node(1, {}, base::milliseconds(20)),
                             compute_node(2, {}, base::milliseconds(15)),
                             compute_node(3, {1, 2}, base::milliseconds(10))};
  nodes[1].on_host = true;
  for (const RankOutcome& outcome : replay_all(world_of({nodes, nodes}))) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(outcome.report.computing, base::milliseconds(30));
    EXPECT_GE(outcome.report.length, outcome.report.computing);
  }
}

TEST(Replay, EveryKindOfCollectiveAndMessageIsDone) {
  std::vector<std::vector<Node>> ranks(3);
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    for (unsigned kind = 0; kind < kCollectiveKinds; ++kind) {
      Node node = collective_node(kind, static_cast<CollectiveKind>(kind), 12'345);
      node.root = 1;
      ranks[rank].push_back(node);
    }
    // A ring as it is traced.
    ranks[rank].push_back(message_node(20, NodeKind::kSend, (rank + 1) % 3, 5'000, {}, -7));
    ranks[rank].push_back(message_node(21, NodeKind::kReceive, (rank + 2) % 3, 5'000, {20}, -7));
  }
  for (const RankOutcome& outcome : replay_all(world_of(ranks))) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(outcome.report.operations, kCollectiveKinds + 2U);
  }
}

TEST(Replay, GroupsOfAStepAreCommunicatorsOfTheirOwn) {
  LlmStepOptions options;
  options.tensor = 2;
  options.data = 2;
  options.pipeline = 2;
  options.layers = 2;
  options.hidden = 64;
  options.sequence = 64;
  options.micro_batches = 2;
  GraphBuilder builder({});
  builder.set_source("llm", 0);
  ASSERT_TRUE(synthesize(options, builder).ok());
  const World world = std::move(builder).finish();
  for (const RankOutcome& outcome : replay_all(world, {.precision = {}})) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_GT(outcome.report.operations, 10U);
  }
}

TEST(Replay, ReadyInAnotherOrderIsCalledInTheFilesOrder) {
  // Rank 0 could call the second at once, rank 1 the first.
  const auto call = [](std::uint64_t id, std::uint64_t bytes, std::vector<std::uint64_t> deps) {
    return collective_node(id, CollectiveKind::kAllReduce, bytes, "", std::move(deps));
  };
  const World world = world_of(
      {{compute_node(1, {}, base::milliseconds(20)), call(2, 4'000, {1}), call(3, 8'000, {})},
       {compute_node(1, {}, base::milliseconds(20)), call(2, 4'000, {}), call(3, 8'000, {1})}});
  for (const RankOutcome& outcome : replay_all(world)) {
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
  }
}

TEST(Replay, WhoDoesNotComeEndsItWithASentence) {
  const World world = world_of({{collective_node(1, CollectiveKind::kAllReduce, 4'000)},
                                {compute_node(1, {2}), compute_node(2, {1}),
                                 collective_node(3, CollectiveKind::kAllReduce, 4'000, "", {2})}});
  // Rank 0 may give up first while rank 1 waits for a processor; then the test tries a longer
  // patience.
  const std::string sentence = "collective 0 of group '' was not called: node 3";
  std::string said;
  harness::Limit limit;
  for (base::Duration patience = base::milliseconds(1500);
       said.find(sentence) == std::string::npos && !limit.is_over(); patience = patience * 2) {
    const std::vector<RankOutcome> outcomes = replay_all(world, {.patience = patience});
    EXPECT_FALSE(outcomes[0].status.ok());
    ASSERT_FALSE(outcomes[1].status.ok());
    said = outcomes[1].status.message();
  }
  EXPECT_NE(said.find(sentence), std::string::npos) << said;
}

TEST(Replay, AWorldOfAnotherSizeIsRefused) {
  const World world = world_of({{}, {}, {}});
  comm::testing_job::run_job(2, 0, [&](comm::Communicator& all_ranks) {
    const auto groups =
        GroupCommunicators::make(world, all_ranks, comm::testing_job::test_patience_duration());
    ASSERT_FALSE(groups.ok());
    EXPECT_NE(groups.status().message().find("the trace has 3 ranks, the job 2"),
              std::string::npos);
  });
}

TEST(ForeignTraces, TheRingOfEightIsReplayedAsRealTraffic) {
  const std::filesystem::path folder = foreign_traces();
  if (folder.empty()) {
    GTEST_SKIP() << "no ../shared/data/chakra beside the checkout";
  }
  for (const char* name : {"ring_8npus_1MB", "all_reduce_4npus_1MB"}) {
    const World world = read_world((folder / name).string(), {}).value();
    for (const RankOutcome& outcome : replay_all(world)) {
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      EXPECT_EQ(outcome.report.operations, world.size() == 8 ? 28U : 1U);
    }
  }
}

// ------------------------------------------------------------------ steps of language models

World synthesized(const LlmStepOptions& options) {
  GraphBuilder builder({.keeps_names = true});
  builder.set_source("llm", 0);
  const base::Status status = synthesize(options, builder);
  EXPECT_TRUE(status.ok()) << status.message();
  return std::move(builder).finish();
}

TEST(LlmStep, EveryKindOfParallelismIsSound) {
  struct Case {
    std::uint32_t tensor, data, pipeline, expert, micro_batches;
  };
  for (const Case& c :
       {Case{1, 1, 1, 1, 1}, Case{4, 1, 1, 1, 2}, Case{1, 8, 1, 1, 1}, Case{1, 1, 4, 1, 8},
        Case{2, 4, 3, 1, 2}, Case{2, 8, 2, 4, 3}, Case{1, 4, 5, 2, 1}}) {
    LlmStepOptions options;
    options.tensor = c.tensor;
    options.data = c.data;
    options.pipeline = c.pipeline;
    options.expert = c.expert;
    options.micro_batches = c.micro_batches;
    options.layers = 7;
    options.steps = 2;
    const World world = synthesized(options);
    EXPECT_EQ(world.size(), options.world());
    const LintReport report = lint(world);
    EXPECT_TRUE(report.findings.empty())
        << c.tensor << c.data << c.pipeline << c.expert << ": " << report.findings.front().text;
  }
}

TEST(LlmStep, SizesFollowFromTheModel) {
  LlmStepOptions options;
  options.tensor = 2;
  options.data = 4;
  options.layers = 3;
  options.hidden = 1024;
  options.sequence = 512;
  const World world = synthesized(options);
  std::uint64_t activations = 0;
  std::uint64_t gradients = 0;
  for (const GraphNode& node : world.ranks[5].nodes) {
    if (node.kind == NodeKind::kCollective) {
      (world.groups[node.group].ranks.size() == 2 ? activations : gradients) += node.bytes;
    }
  }
  EXPECT_EQ(activations, 3U * 4 * 512 * 1024 * 2);      // four per layer
  EXPECT_EQ(gradients, 3U * 12 * 1024 * 1024 * 2 / 2);  // one layer's over two ranks
}

TEST(LlmStep, StagesShareTheLayersOut) {
  LlmStepOptions options;
  options.pipeline = 3;
  options.layers = 7;
  const World world = synthesized(options);
  const auto computes = [&](std::uint32_t rank) {
    return std::count_if(world.ranks[rank].nodes.begin(), world.ranks[rank].nodes.end(),
                         [](const GraphNode& node) { return node.kind == NodeKind::kCompute; });
  };
  EXPECT_EQ(computes(0), 3 * 4 + 1);
  EXPECT_EQ(computes(1), 2 * 4 + 1);
  EXPECT_EQ(computes(2), 2 * 4 + 1 + 2);  // plus the logits
}

TEST(LlmStep, RefusesWhatDoesNotFit) {
  LlmStepOptions options;
  options.pipeline = 25;
  EXPECT_FALSE(validate(options).ok());  // 24 layers
  options = {};
  options.data = 6;
  options.expert = 4;
  EXPECT_FALSE(validate(options).ok());
  options = {};
  options.data = 65'537;
  EXPECT_FALSE(validate(options).ok());
  options = {};
  options.flops = 0;
  EXPECT_FALSE(validate(options).ok());
  options = {};
  options.micro_batches = 1'000'000;
  options.data = 1000;
  EXPECT_EQ(validate(options).code(), base::StatusCode::kLimitExceeded);
  EXPECT_TRUE(validate({}).ok());
}

}  // namespace

}  // namespace spillway::emulate
