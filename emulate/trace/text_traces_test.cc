// SPDX-License-Identifier: Apache-2.0
#include "emulate/trace/reader.h"

#include <gtest/gtest.h>

#include <map>

#include "emulate/emulate_testing.h"
#include "emulate/trace/lint.h"

namespace spillway::emulate {
namespace {

// ------------------------------------------------------------------ readers

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

TEST(JobMerger, JobsFollowEachOther) {
  const MergedTrace merged = two_and_three(MergeOrder::kConsecutive);
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

TEST(JobMerger, RanksOfAllJobsCanBeInterleaved) {
  const MergedTrace merged = two_and_three(MergeOrder::kInterleaved);
  EXPECT_EQ(merged.infos.at(0).groups[0].ranks, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(merged.infos.at(4).groups[0].ranks, (std::vector<std::uint32_t>{1, 3, 4}));
}

TEST(JobMerger, RanksThatAJobDoesNotHaveAreErrors) {
  MergedTrace merged;
  JobMerger merger({2}, MergeOrder::kConsecutive, merged);
  merger.set_source(0, 2);
  EXPECT_EQ(merger.on_rank({}).message(), "the trace names rank 2 of a job of 2 ranks");
  merger.set_source(0, 1);
  EXPECT_FALSE(merger.on_rank(rank_with({{"dp", {0, 7}}})).ok());
  EXPECT_FALSE(merger.on_node(message_to(2)).ok());
  EXPECT_FALSE(merger.on_node(broadcast_of("", 2)).ok());
}

TEST(RankCounter, TakesRanksFromFilesAndFromTheirNames) {
  RankCounter counter;
  counter.set_default_rank(3);
  EXPECT_TRUE(counter.on_rank({}).ok());
  EXPECT_EQ(counter.ranks(), 4U);
  EXPECT_TRUE(counter.on_rank(rank_of(1, 8)).ok());
  EXPECT_EQ(counter.ranks(), 8U);
  EXPECT_FALSE(counter.on_rank(rank_of(kMaxTraceRanks, 1)).ok());
}

using ReadText = base::Status (*)(std::string_view, NodeSink&);

World read_text_world(ReadText read, std::string_view text) {
  GraphBuilder builder({.keeps_names = true});
  builder.set_source("text", 0);
  const base::Status status = read(text, builder);
  EXPECT_TRUE(status.ok()) << status.message();
  return std::move(builder).finish();
}

std::string refusal(ReadText read, std::string_view text) {
  GraphBuilder builder({});
  builder.set_source("text", 0);
  return read(text, builder).message();
}

TEST(Goal, ReadsRanksWithTheirRequirements) {
  const World world = read_text_world(read_goal,
                                      "num_ranks 2\n"
                                      "rank 0 {\n"
                                      "l1: calc 100 cpu 1\n"
                                      "l2: send 10b to 1 tag 3 nic 0\n"
                                      "l2 requires l1\n"
                                      "}\n"
                                      "rank 1 {  # waits\n"
                                      "l1: recv 10b from 0 tag 3\n"
                                      "l2: calc 5\n"
                                      "l2 irequires l1\n"
                                      "}\n");
  ASSERT_EQ(world.size(), 2U);
  ASSERT_EQ(world.ranks[0].nodes.size(), 2U);
  EXPECT_EQ(world.ranks[0].nodes[0].duration_ns, 100);
  EXPECT_EQ(world.ranks[0].nodes[1].bytes, 10U);
  EXPECT_EQ(world.ranks[0].nodes[1].tag, 3);
  EXPECT_EQ(world.ranks[0].deps_of(1).size(), 1U);
  EXPECT_EQ(world.ranks[1].nodes[0].peer, 0U);
  EXPECT_EQ(lint(world).count(Severity::kError), 0U);
}

TEST(Goal, RefusalsNameTheLine) {
  EXPECT_EQ(refusal(read_goal, "rank 0 {\n}\n").substr(0, 7), "line 1:");
  EXPECT_EQ(refusal(read_goal, "num_ranks 1\nrank 0 {\nl1: jump\n}\n").substr(0, 7), "line 3:");
  EXPECT_EQ(refusal(read_goal, "num_ranks 1\nrank 0 {\nl1: calc 1\nl1: calc 1\n").substr(0, 7),
            "line 4:");
  EXPECT_NE(refusal(read_goal, "num_ranks 1\nrank 0 {\n").find("ends inside"), std::string::npos);
  EXPECT_NE(refusal(read_goal, "num_ranks 1\nrank 0 {\nl1 requires l2\n}").find("no label"),
            std::string::npos);
  EXPECT_FALSE(refusal(read_goal, "num_ranks 2\nrank 0 {\nl1: send 1b to 9 tag 0\n}").empty());
}

constexpr std::string_view kSimaiText =
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 1 ga: 1 "
    "all_gpus: 8 checkpoints: 0 checkpoint_initiates: 0\n"
    "2\n"
    "attention -1 1000 ALLREDUCE 4096 900 ALLREDUCE 4096 800 NONE 0 100\n"
    "mlp -1 500 ALLTOALL_EP 2048 400 NONE 0 300 REDUCESCATTER_DP_EP 8192 50\n";

TEST(Simai, EveryRankDoesTheRowsForwardAndBack) {
  const World world = read_text_world(read_simai, kSimaiText);
  ASSERT_EQ(world.size(), 8U);
  // Two rows forward, four parts back and the update, with collectives beside them.
  for (const RankGraph& rank : world.ranks) {
    ASSERT_EQ(rank.nodes.size(), 2U + 4 + 1 + 4);
    EXPECT_EQ(rank.nodes.back().duration_ns, 150);
  }
  const GraphGroup& tensor = world.groups[world.ranks[5].nodes[1].group];
  EXPECT_EQ(tensor.ranks, (std::vector<std::uint32_t>{4, 5}));
  const GraphGroup& expert = world.groups[world.ranks[5].nodes[3].group];
  EXPECT_EQ(expert.ranks, (std::vector<std::uint32_t>{5, 7}));
  EXPECT_EQ(lint(world).count(Severity::kError), 0U);
}

TEST(Simai, RefusesWhatDoesNotDivideAndRowsThatAreNone) {
  EXPECT_NE(
      refusal(read_simai, "X model_parallel_NPU_group: 3 pp: 1 all_gpus: 8\n1\n").find("divide"),
      std::string::npos);
  EXPECT_NE(refusal(read_simai, "X all_gpus: 2\n1\nrow -1 1 NONE 0 1 NONE 0\n").find("line 3"),
            std::string::npos);
  EXPECT_FALSE(refusal(read_simai, "").empty());
}

TEST(JsonTraces, ReadsChakrasForm) {
  const World world = read_text_world(read_json_trace, R"({"workload_graph": [
      {"Id": 1, "Name": "a", "NodeType": 4, "runtime": 5, "data_deps": []},
      {"Id": 2, "Name": "b", "NodeType": 7, "comm_type": 6, "comm_size": 4096, "data_deps": [1]},
      {"Id": 3, "Name": "c", "NodeType": 5, "comm_dst": 1, "comm_tag": 9, "comm_size": 7,
       "data_deps": [1, 2], "is_cpu_op": true}]})");
  const RankGraph& rank = world.ranks.at(0);
  ASSERT_EQ(rank.nodes.size(), 3U);
  EXPECT_EQ(rank.nodes[0].duration_ns, 5000);
  EXPECT_EQ(rank.nodes[1].collective, CollectiveKind::kAllToAll);
  EXPECT_EQ(rank.nodes[2].peer, 1U);
  EXPECT_EQ(rank.nodes[2].tag, 9);
  EXPECT_TRUE(rank.nodes[2].on_host);
  EXPECT_EQ(rank.deps.size(), 3U);
}

TEST(JsonTraces, ReadsPytorchsFormWithItsGroups) {
  const World world =
      read_text_world(read_json_trace, R"({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [
      {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1, "attrs": []},
      {"id": 2, "name": "## process_group:init ##", "ctrl_deps": 1,
       "inputs": {"values": ["[{\"pg_name\": \"5\", \"ranks\": [0, 2]}]"], "shapes": [], "types": []}, "attrs": []},
      {"id": 3, "name": "aten::add", "ctrl_deps": 1, "dur": 12, "attrs": []},
      {"id": 4, "name": "record_param_comms", "ctrl_deps": 3, "attrs": [
         {"name": "collective_name", "type": "string", "value": "allreduce"},
         {"name": "dtype", "type": "string", "value": "BFloat16"},
         {"name": "in_msg_nelems", "type": "uint64", "value": 100},
         {"name": "pg_name", "type": "string", "value": "5"}]},
      {"id": 6, "name": "record_param_comms", "ctrl_deps": 3, "attrs": [
         {"name": "collective_name", "type": "string", "value": "_allgather_base"},
         {"name": "dtype", "type": "string", "value": "Float"},
         {"name": "in_msg_nelems", "type": "uint64", "value": 10}]}],
      "finish_ts": 9})");
  const RankGraph& rank = world.ranks.at(0);
  ASSERT_EQ(rank.nodes.size(), 5U);
  EXPECT_EQ(rank.nodes[2].duration_ns, 12'000);
  EXPECT_EQ(rank.nodes[3].kind, NodeKind::kCollective);
  EXPECT_EQ(rank.nodes[3].bytes, 200U);
  EXPECT_EQ(world.groups[rank.nodes[3].group].ranks, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(rank.nodes[4].collective, CollectiveKind::kAllGather);
  EXPECT_EQ(rank.deps_of(4).size(), 1U);  // after the other collective
  EXPECT_EQ(rank.control_own, 1U);
}

TEST(JsonTraces, RefusesWhatIsNoTraceOrNoJson) {
  EXPECT_NE(refusal(read_json_trace, "{}").find("workload_graph"), std::string::npos);
  EXPECT_FALSE(refusal(read_json_trace, R"({"nodes": [{"id": 1)").empty());
  EXPECT_FALSE(refusal(read_json_trace, "").empty());
  EXPECT_FALSE(refusal(read_json_trace, "[1, 2]").empty());
}

TEST(CollectiveKinds, AreReadInEverySpelling) {
  EXPECT_EQ(parse_collective_kind("ALLREDUCE"), CollectiveKind::kAllReduce);
  EXPECT_EQ(parse_collective_kind("nccl:all_reduce"), CollectiveKind::kAllReduce);
  EXPECT_EQ(parse_collective_kind("_reduce_scatter_base"), CollectiveKind::kReduceScatter);
  EXPECT_EQ(parse_collective_kind("all_to_allv"), CollectiveKind::kAllToAll);
  EXPECT_FALSE(parse_collective_kind("wait").has_value());
  EXPECT_FALSE(parse_collective_kind("").has_value());
}

}  // namespace

}  // namespace spillway::emulate
