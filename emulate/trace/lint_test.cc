// SPDX-License-Identifier: Apache-2.0
#include "emulate/trace/lint.h"

#include <gtest/gtest.h>

#include <chrono>

#include "emulate/emulate_testing.h"
#include "emulate/trace/reader.h"
#include "harness/slowdown.h"

namespace spillway::emulate {
namespace {

std::uint64_t count_of(const LintReport& report, FindingKind kind) {
  return report.counts[static_cast<std::size_t>(kind)];
}

const Finding& first_of(const LintReport& report, FindingKind kind) {
  static const Finding kNothing;
  for (const Finding& finding : report.findings) {
    if (finding.kind == kind) {
      return finding;
    }
  }
  return kNothing;
}

TEST(Lint, AGoodWorldHasNothingToSay) {
  const std::vector<Node> nodes = {compute_node(1),
                                   collective_node(2, CollectiveKind::kAllReduce, 64, "", {1}),
                                   compute_node(3, {2})};
  EXPECT_TRUE(lint(world_of({nodes, nodes, nodes})).findings.empty());
}

TEST(Lint, NamesACycleByItsNodes) {
  const World world = world_of({{compute_node(1), compute_node(2, {1, 4}), compute_node(3, {2}),
                                 compute_node(4, {3}), compute_node(5, {4})}});
  const LintReport report = lint(world);
  ASSERT_EQ(count_of(report, FindingKind::kCycle), 1U);
  const Finding& finding = first_of(report, FindingKind::kCycle);
  EXPECT_EQ(finding.file, "rank0");
  EXPECT_EQ(finding.text,
            "3 nodes form a cycle: 2 waits for 4 waits for 3 waits for 2; 4 nodes are in the cycle "
            "or depend on it");
}

TEST(Lint, CountsIdsThatAreThereTwiceAndDependenciesOnNothing) {
  const LintReport report =
      lint(world_of({{compute_node(5, {99}), compute_node(5), compute_node(4, {4, 98})}}));
  EXPECT_EQ(count_of(report, FindingKind::kDuplicateId), 1U);
  EXPECT_EQ(count_of(report, FindingKind::kDanglingDependency), 2U);
  EXPECT_EQ(count_of(report, FindingKind::kDependsOnItself), 1U);
  EXPECT_EQ(first_of(report, FindingKind::kDuplicateId).node, 5U);
}

TEST(Lint, MembersThatDoNotAgreeAreNamed) {
  const LintReport report = lint(world_of({{collective_node(1, CollectiveKind::kAllReduce, 64)},
                                           {collective_node(7, CollectiveKind::kAllReduce, 65)},
                                           {collective_node(1, CollectiveKind::kAllGather, 64)}}));
  EXPECT_EQ(count_of(report, FindingKind::kDisagreement), 2U);
  const Finding& finding = first_of(report, FindingKind::kDisagreement);
  EXPECT_EQ(finding.file, "rank1");
  EXPECT_EQ(finding.node, 7U);
  EXPECT_NE(finding.text.find("rank 1 calls all-reduce of 65 bytes"), std::string::npos);
}

TEST(Lint, WhoDoesNotComeIsNamedWithGroupAndNumber) {
  const auto call = [](std::uint64_t id) {
    return collective_node(id, CollectiveKind::kAllReduce, 64, "dp");
  };
  const World world =
      world_of({{call(1), call(2)}, {call(1), call(2)}, {call(1)}, {}}, {{"dp", {0, 1, 2}}});
  const LintReport report = lint(world);
  EXPECT_EQ(count_of(report, FindingKind::kDisagreement), 1U);
  EXPECT_EQ(first_of(report, FindingKind::kDisagreement).file, "rank2");
  ASSERT_EQ(count_of(report, FindingKind::kCannotRun), 1U);
  EXPECT_EQ(first_of(report, FindingKind::kCannotRun).text,
            "all-reduce 1 of group 'dp': ranks 0-1 arrived, rank 2 did not");
}

// Two groups whose members wait for each other, though every file alone is fine.
TEST(Lint, GroupsThatCrossCannotRun) {
  const auto call = [](std::uint64_t id, const char* group, std::vector<std::uint64_t> deps) {
    return collective_node(id, CollectiveKind::kAllReduce, 64, group, std::move(deps));
  };
  const LintReport report =
      lint(world_of({{call(1, "a", {}), call(2, "b", {1})}, {call(1, "b", {}), call(2, "a", {1})}},
                    {{"a", {0, 1}}, {"b", {0, 1}}}));
  EXPECT_EQ(count_of(report, FindingKind::kCycle), 0U);
  EXPECT_EQ(count_of(report, FindingKind::kDisagreement), 0U);
  EXPECT_EQ(count_of(report, FindingKind::kCannotRun), 2U);
}

TEST(Lint, MessagesWithoutTheOtherEndAreFound) {
  const LintReport report = lint(world_of({{message_node(1, NodeKind::kSend, 1, 10)},
                                           {message_node(1, NodeKind::kReceive, 0, 10),
                                            message_node(2, NodeKind::kReceive, 0, 10, {}, 3)}}));
  EXPECT_EQ(count_of(report, FindingKind::kUnmatched), 1U);
  EXPECT_EQ(first_of(report, FindingKind::kCannotRun).text,
            "message 0 from rank 0 to rank 1 with tag 3: rank 1 arrived, rank 0 did not");
}

TEST(Lint, CommunicationWithoutSizeIsAWarning) {
  Node node = collective_node(1, CollectiveKind::kAllReduce, 1);
  node.bytes.reset();
  Node send = message_node(2, NodeKind::kSend, 0, 1);
  send.peer.reset();
  const LintReport report = lint(world_of({{node, send}}));
  EXPECT_EQ(report.count(Severity::kWarning), 2U);
  EXPECT_EQ(report.count(Severity::kError), 0U);
  EXPECT_EQ(report.findings[1].text, "a send without its peer rank");
}

TEST(Lint, AChainOfAMillionNodesIsWalkedNotRecursedInto) {
  std::vector<Node> chain;
  for (std::uint64_t id = 0; id < 1'000'000; ++id) {
    chain.push_back(compute_node(id, {id + 1}));  // each waits for the next
  }
  chain.push_back(compute_node(1'000'000));
  EXPECT_TRUE(lint(world_of({chain})).findings.empty());
  chain.back().data_deps = {0};
  EXPECT_EQ(count_of(lint(world_of({chain})), FindingKind::kCycle), 1U);
}

TEST(Lint, FindingsAreCountedBeyondThoseTold) {
  std::vector<Node> nodes;
  for (std::uint64_t id = 0; id < 1000; ++id) {
    nodes.push_back(compute_node(id, {5000 + id}));
  }
  const LintReport report = lint(world_of({nodes}));
  EXPECT_EQ(count_of(report, FindingKind::kDanglingDependency), 1000U);
  EXPECT_LE(report.findings.size(), kMaxFindingsPerKind);
}

TEST(Lint, TheRealTraceIsSoundButForSizesAndControl) {
  const std::filesystem::path folder = foreign_traces();
  if (folder.empty()) {
    GTEST_SKIP() << "no ../shared/data/chakra beside the checkout";
  }
  const std::string path = (folder / "pytorch_real.0.et.gz").string();
  LintReport report;
  const auto took = harness::reference_time([&] { report = lint(read_world(path, {}).value()); });
  EXPECT_EQ(report.count(Severity::kError), 0U);
  EXPECT_EQ(count_of(report, FindingKind::kIncomplete), 14U);
  EXPECT_EQ(first_of(report, FindingKind::kControl).text,
            "1277 control dependencies refer to no node and 383 to their own node");
  EXPECT_LT(took, std::chrono::seconds(5));  // about 0.1 s
  // Followed control dependencies form cycles, because a call tree is no order of execution.
  EXPECT_EQ(
      count_of(lint(read_world(path, {.follows_control = true}).value()), FindingKind::kCycle), 1U);
}

TEST(Lint, TheRingAndTheAllReduceOfOthersAreSound) {
  const std::filesystem::path folder = foreign_traces();
  if (folder.empty()) {
    GTEST_SKIP() << "no ../shared/data/chakra beside the checkout";
  }
  for (const char* name : {"ring_8npus_1MB", "all_reduce_4npus_1MB"}) {
    EXPECT_TRUE(lint(read_world((folder / name).string(), {}).value()).findings.empty()) << name;
  }
}

}  // namespace
}  // namespace spillway::emulate
