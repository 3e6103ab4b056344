// SPDX-License-Identifier: Apache-2.0
#include "emulate/trace/merge.h"

#include <gtest/gtest.h>

#include <map>

namespace spillway::emulate {
namespace {

// A merger's output, by rank.
struct MergedTrace final : NodeSink {
  base::Status on_rank(const RankInfo& info) override {
    infos[*info.rank] = info;
    at = *info.rank;
    return {};
  }
  base::Status on_node(const Node& node) override {
    nodes[at].push_back(node);
    return {};
  }
  std::map<std::uint32_t, RankInfo> infos;
  std::map<std::uint32_t, std::vector<Node>> nodes;
  std::uint32_t at = 0;
};

RankInfo rank_with(std::vector<GroupInfo> groups) {
  RankInfo info;
  info.groups = std::move(groups);
  return info;
}

RankInfo rank_of(std::uint32_t rank, std::uint32_t world) {
  RankInfo info;
  info.rank = rank;
  info.world = world;
  return info;
}

Node broadcast_of(const std::string& group, std::uint32_t root) {
  Node node;
  node.kind = NodeKind::kCollective;
  node.collective = CollectiveKind::kBroadcast;
  node.group = group;
  node.root = root;
  return node;
}

Node message_to(std::uint32_t peer) {
  Node node;
  node.kind = NodeKind::kSend;
  node.peer = peer;
  return node;
}

MergedTrace two_and_three(MergeOrder order) {
  MergedTrace merged;
  JobMerger merger({2, 3}, order, merged);
  for (std::size_t job = 0; job < 2; ++job) {
    for (std::uint32_t rank = 0; rank < 2 + job; ++rank) {
      merger.set_source(job, rank);
      EXPECT_TRUE(merger.on_rank(rank_with({{"dp", {0, 1}}})).ok());
      EXPECT_TRUE(merger.on_node(broadcast_of("", 1)).ok());
      EXPECT_TRUE(merger.on_node(broadcast_of("dp", 0)).ok());
      EXPECT_TRUE(merger.on_node(message_to(1)).ok());
    }
  }
  return merged;
}

TEST(JobMerger, JobsAreOneBehindTheOther) {
  const MergedTrace merged = two_and_three(MergeOrder::kBehind);
  ASSERT_EQ(merged.infos.size(), 5U);
  const RankInfo& fourth = merged.infos.at(3);  // rank 1 of the second job
  EXPECT_EQ(fourth.world, 5U);
  EXPECT_EQ(fourth.groups[0].name, "1/");
  EXPECT_EQ(fourth.groups[0].ranks, (std::vector<std::uint32_t>{2, 3, 4}));
  EXPECT_EQ(fourth.groups[1].name, "1/dp");
  EXPECT_EQ(fourth.groups[1].ranks, (std::vector<std::uint32_t>{2, 3}));
  const std::vector<Node>& nodes = merged.nodes.at(3);
  EXPECT_EQ(nodes[0].group, "1/");
  EXPECT_EQ(nodes[0].root, 3U);
  EXPECT_EQ(nodes[1].group, "1/dp");
  EXPECT_EQ(nodes[1].root, 2U);
  EXPECT_EQ(nodes[2].peer, 3U);
  EXPECT_EQ(merged.nodes.at(1)[0].group, "0/");
}

TEST(JobMerger, OrTheirRanksAreAmongEachOther) {
  const MergedTrace merged = two_and_three(MergeOrder::kAmong);
  EXPECT_EQ(merged.infos.at(0).groups[0].ranks, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(merged.infos.at(4).groups[0].ranks, (std::vector<std::uint32_t>{1, 3, 4}));
}

TEST(JobMerger, RanksThatAJobHasNotAreErrors) {
  MergedTrace merged;
  JobMerger merger({2}, MergeOrder::kBehind, merged);
  merger.set_source(0, 2);
  EXPECT_EQ(merger.on_rank({}).message(), "rank 2 of a job of 2");
  merger.set_source(0, 1);
  EXPECT_FALSE(merger.on_rank(rank_with({{"dp", {0, 7}}})).ok());
  EXPECT_FALSE(merger.on_node(message_to(2)).ok());
  EXPECT_FALSE(merger.on_node(broadcast_of("", 2)).ok());
}

TEST(RankCounter, CountsWhatFilesSayAndWhatTheyAreCalled) {
  RankCounter counter;
  counter.set_default_rank(3);
  EXPECT_TRUE(counter.on_rank({}).ok());
  EXPECT_EQ(counter.ranks(), 4U);
  EXPECT_TRUE(counter.on_rank(rank_of(1, 8)).ok());
  EXPECT_EQ(counter.ranks(), 8U);
  EXPECT_FALSE(counter.on_rank(rank_of(kMaxTraceRanks, 1)).ok());
}

}  // namespace
}  // namespace spillway::emulate
