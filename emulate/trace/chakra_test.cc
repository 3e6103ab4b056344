// SPDX-License-Identifier: Apache-2.0
#include "emulate/trace/reader.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "emulate/emulate_testing.h"
#include "observe/chakra.h"

namespace spillway::emulate {
namespace {

using chakra::append_bytes_field;
using chakra::append_varint;
using chakra::append_varint_field;
using chakra::zigzag;

struct Kept final : NodeSink {
  base::Status on_rank(const RankInfo& given) override {
    info = given;
    return {};
  }
  base::Status on_node(const Node& node) override {
    nodes.push_back(node);
    return {};
  }
  RankInfo info;
  std::vector<Node> nodes;
};

base::Status read_bytes(const std::string& bytes, Kept& kept) {
  const auto source =
      memory_source({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  return read_chakra(*source, kept);
}

std::string framed(const std::string& message) {
  std::string out;
  append_varint(out, message.size());
  return out + message;
}

std::string attribute(const std::string& name, std::uint32_t arm, std::uint64_t value) {
  std::string out;
  append_bytes_field(out, 1, name);
  append_varint_field(out, arm, value);
  return out;
}

// A collective with its size in one arm of the oneof.
std::string file_with_size(const std::string& size_attribute) {
  std::string node;
  append_varint_field(node, 1, 7);
  append_varint_field(node, 3, 7);
  append_bytes_field(node, 10, attribute("comm_type", 9, 0));
  append_bytes_field(node, 10, size_attribute);
  return framed("") + framed(node);
}

// The 83 bytes of an all_reduce.1.et.
TEST(Chakra, ReadsTheWorkedExampleByteByByte) {
  const std::string file(
      "\x07\x0a\x05"
      "0.0.4"
      "\x4a\x08\x01\x12\x14"
      "all_reduce_4npus_1MB"
      "\x18\x07\x52\x0e\x0a\x09is_cpu_op\xd8\x01\x00\x52\x0d\x0a\x09"
      "comm_type\x48\x00\x52\x0f\x0a\x09"
      "comm_size\x48\x80\x80\x40",
      83);
  Kept kept;
  ASSERT_TRUE(read_bytes(file, kept).ok());
  EXPECT_EQ(kept.info.version, "0.0.4");
  ASSERT_EQ(kept.nodes.size(), 1U);
  EXPECT_EQ(kept.nodes[0].id, 1U);
  EXPECT_EQ(kept.nodes[0].name, "all_reduce_4npus_1MB");
  EXPECT_EQ(kept.nodes[0].kind, NodeKind::kCollective);
  EXPECT_EQ(kept.nodes[0].collective, CollectiveKind::kAllReduce);
  EXPECT_EQ(kept.nodes[0].bytes, 1048576U);
  EXPECT_FALSE(kept.nodes[0].on_host);
}

TEST(Chakra, TakesASizeFromEveryIntegerArm) {
  for (const std::uint32_t arm : {7U, 9U, 11U, 13U}) {
    Kept kept;
    ASSERT_TRUE(read_bytes(file_with_size(attribute("comm_size", arm, 4096)), kept).ok()) << arm;
    EXPECT_EQ(kept.nodes.at(0).bytes, 4096U) << arm;
  }
  for (const std::uint32_t arm : {15U, 17U}) {
    Kept kept;
    ASSERT_TRUE(read_bytes(file_with_size(attribute("comm_size", arm, zigzag(4096))), kept).ok());
    EXPECT_EQ(kept.nodes.at(0).bytes, 4096U) << arm;
  }
  // fixed32 19, fixed64 21, sfixed32 23, sfixed64 25: key, then bytes.
  for (const std::uint32_t arm : {19U, 21U, 23U, 25U}) {
    const bool is_wide = arm == 21 || arm == 25;
    std::string bytes;
    append_bytes_field(bytes, 1, "comm_size");
    append_varint(bytes, arm << 3 | (is_wide ? 1U : 5U));
    bytes += std::string("\x00\x10\x00\x00\x00\x00\x00\x00", is_wide ? 8 : 4);
    Kept kept;
    ASSERT_TRUE(read_bytes(file_with_size(bytes), kept).ok());
    EXPECT_EQ(kept.nodes.at(0).bytes, 4096U) << arm;
  }
}

TEST(Chakra, TakesDependenciesPackedOrOneByOne) {
  std::string packed;
  append_varint_field(packed, 1, 9);
  append_bytes_field(packed, 5, std::string("\x01\x02\x80\x01", 4));
  append_bytes_field(packed, 4, "\x05");
  std::string single;
  for (const std::uint64_t id : {1U, 2U, 128U}) {
    append_varint_field(single, 5, id);
  }
  Kept kept;
  ASSERT_TRUE(read_bytes(framed("") + framed(packed) + framed(single), kept).ok());
  EXPECT_EQ(kept.nodes.at(0).data_deps, (std::vector<std::uint64_t>{1, 2, 128}));
  EXPECT_EQ(kept.nodes.at(0).control_deps, std::vector<std::uint64_t>{5});
  EXPECT_EQ(kept.nodes.at(1).data_deps, (std::vector<std::uint64_t>{1, 2, 128}));
}

TEST(Chakra, WhatIsMissingIsAbsentAndNotZero) {
  std::string node;
  append_varint_field(node, 3, 7);
  Kept kept;
  ASSERT_TRUE(read_bytes(framed("") + framed(node), kept).ok());
  EXPECT_EQ(kept.info.version, "");
  EXPECT_FALSE(kept.nodes.at(0).bytes.has_value());
  EXPECT_FALSE(kept.nodes.at(0).collective.has_value());
  EXPECT_EQ(kept.nodes.at(0).id, 0U);
}

TEST(Chakra, EveryCutOfAFileIsRefusedOrReadsFewerNodes) {
  const std::string file = file_with_size(attribute("comm_size", 9, 4096));
  for (std::size_t size = 0; size < file.size(); ++size) {
    Kept kept;
    const base::Status status = read_bytes(file.substr(0, size), kept);
    EXPECT_TRUE(kept.nodes.empty()) << size;
    EXPECT_EQ(status.ok(), size == 1) << size;  // a file may end after the metadata
  }
}

TEST(Chakra, ALengthThatLiesIsRefusedWithoutTheMemory) {
  Kept kept;
  std::string file = framed("");
  append_varint(file, kMaxMessageBytes);
  const base::Status status = read_bytes(file + "x", kept);
  EXPECT_NE(status.message().find("ends inside a message"), std::string::npos) << status.message();
  file = framed("");
  append_varint(file, kMaxMessageBytes + 1);
  EXPECT_NE(read_bytes(file, kept).message().find("is the limit"), std::string::npos);
}

TEST(Chakra, WhatIsWrittenIsReadAgain) {
  const std::string folder = testing::TempDir() + std::to_string(::getpid()) + ".";
  for (const char* name : {"written.3.et", "written.3.et.gz"}) {
    const std::string path = folder + name;
    RankInfo info;
    info.rank = 3;
    info.world = 8;
    info.groups = {{"dp0", {1, 3, 5}}, {"", {0, 1}}};
    Node compute = compute_node(1, {}, base::nanoseconds(1234567));
    compute.name = "layer 0";
    Node reduce = collective_node(2, CollectiveKind::kReduceScatter, 1 << 20, "dp0", {1});
    Node send = message_node(3, NodeKind::kSend, 4, 77, {1, 2}, -5);
    Node broadcast = collective_node(4, CollectiveKind::kBroadcast, 12);
    broadcast.root = 2;
    {
      auto writer = ChakraWriter::create(path);
      ASSERT_TRUE(writer.ok());
      ASSERT_TRUE((*writer)->on_rank(info).ok());
      for (const Node& node : {compute, reduce, send, broadcast}) {
        ASSERT_TRUE((*writer)->on_node(node).ok());
      }
      ASSERT_TRUE((*writer)->finish().ok());
    }
    Kept kept;
    ASSERT_TRUE(read_trace_file(path, kept).ok());
    EXPECT_EQ(kept.info.rank, 3U);
    EXPECT_EQ(kept.info.world, 8U);
    ASSERT_EQ(kept.info.groups.size(), 2U);
    EXPECT_EQ(kept.info.groups[0].name, "dp0");
    EXPECT_EQ(kept.info.groups[0].ranks, (std::vector<std::uint32_t>{1, 3, 5}));
    ASSERT_EQ(kept.nodes.size(), 4U);
    EXPECT_EQ(kept.nodes[0].name, "layer 0");
    EXPECT_EQ(kept.nodes[0].duration, base::nanoseconds(1234567));
    EXPECT_EQ(kept.nodes[1].collective, CollectiveKind::kReduceScatter);
    EXPECT_EQ(kept.nodes[1].group, "dp0");
    EXPECT_EQ(kept.nodes[1].bytes, 1U << 20);
    EXPECT_EQ(kept.nodes[2].peer, 4U);
    EXPECT_EQ(kept.nodes[2].tag, -5);
    EXPECT_EQ(kept.nodes[2].data_deps, (std::vector<std::uint64_t>{1, 2}));
    EXPECT_EQ(kept.nodes[3].root, 2U);
    std::filesystem::remove(path);
  }
}

TEST(Chakra, AGzipFileThatEndsEarlyIsRefused) {
  const std::filesystem::path folder = foreign_traces();
  if (folder.empty()) {
    GTEST_SKIP() << "no ../shared/data/chakra beside the checkout";
  }
  std::ifstream whole(folder / "pytorch_real.0.et.gz", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(whole)), std::istreambuf_iterator<char>());
  bytes.resize(bytes.size() / 2);
  const std::string path = testing::TempDir() + std::to_string(::getpid()) + ".half.0.et.gz";
  std::ofstream(path, std::ios::binary) << bytes;
  Kept kept;
  EXPECT_FALSE(read_trace_file(path, kept).ok());
  EXPECT_GT(kept.nodes.size(), 100U);
  std::filesystem::remove(path);
}

// A megabyte of gzip that would become a gigabyte of nodes, each far larger than its bytes here.
TEST(Chakra, AGzipFileThatUnpacksToFarMoreThanItIsIsRefusedEarly) {
  const std::string path = testing::TempDir() + std::to_string(::getpid()) + ".bomb.0.et";
  const std::string nodes(kFreeUnpackedBytes / 4, '\0');  // as many messages without content
  gzFile packed = gzopen((path + ".gz").c_str(), "wb9");
  std::ofstream plain(path, std::ios::binary);
  for (int i = 0; i < 16; ++i) {
    gzwrite(packed, nodes.data(), static_cast<unsigned>(nodes.size()));
    plain << nodes;
  }
  gzclose(packed);
  plain.close();
  struct : NodeSink {
    base::Status on_rank(const RankInfo&) override { return {}; }
    base::Status on_node(const Node&) override {
      ++count;
      return {};
    }
    std::uint64_t count = 0;
  } counted, all;
  const base::Status refused = read_trace_file(path + ".gz", counted);
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("unpack it with gunzip"), std::string::npos)
      << refused.message();
  EXPECT_LE(counted.count, 2 * kFreeUnpackedBytes);
  EXPECT_TRUE(read_trace_file(path, all).ok());
  EXPECT_GT(all.count, 3 * kFreeUnpackedBytes);
  std::filesystem::remove(path);
  std::filesystem::remove(path + ".gz");
}

// ------------------------------------------------------------------ files that others wrote

TEST(ForeignTraces, TheRealTraceHasTheNodesItIsSaidToHave) {
  const std::filesystem::path folder = foreign_traces();
  if (folder.empty()) {
    GTEST_SKIP() << "no ../shared/data/chakra beside the checkout";
  }
  Kept kept;
  ASSERT_TRUE(read_trace_file((folder / "pytorch_real.0.et.gz").string(), kept).ok());
  EXPECT_EQ(kept.info.version, "");
  ASSERT_EQ(kept.nodes.size(), 3664U);
  std::size_t computes = 0;
  std::size_t collectives = 0;
  std::size_t sized = 0;
  std::size_t data_deps = 0;
  std::size_t control_deps = 0;
  for (const Node& node : kept.nodes) {
    computes += node.kind == NodeKind::kCompute ? 1 : 0;
    collectives += node.kind == NodeKind::kCollective ? 1 : 0;
    sized += node.collective && node.bytes ? 1 : 0;
    data_deps += node.data_deps.size();
    control_deps += node.control_deps.size();
  }
  EXPECT_EQ(computes, 3643U);
  EXPECT_EQ(collectives, 21U);
  EXPECT_EQ(sized, 7U);
  EXPECT_EQ(data_deps, 181'878U);
  EXPECT_EQ(control_deps, 3664U);
}

TEST(ForeignTraces, ARingOfEightRanksHas35NodesEach) {
  const std::filesystem::path folder = foreign_traces();
  if (folder.empty()) {
    GTEST_SKIP() << "no ../shared/data/chakra beside the checkout";
  }
  const base::Result<World> world = read_world((folder / "ring_8npus_1MB").string(), {});
  ASSERT_TRUE(world.ok()) << world.status().message();
  ASSERT_EQ(world->size(), 8U);
  EXPECT_EQ(world->nodes(), 8U * 35);
  EXPECT_EQ(world->edges(), 8U * 34);
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    std::map<NodeKind, int> kinds;
    for (const GraphNode& node : world->ranks[rank].nodes) {
      ++kinds[node.kind];
      if (node.kind == NodeKind::kSend) {
        EXPECT_EQ(node.peer, (rank + 1) % 8);
        EXPECT_EQ(node.bytes, 131'072U);
      }
    }
    EXPECT_EQ(kinds[NodeKind::kCompute], 7);
    EXPECT_EQ(kinds[NodeKind::kSend], 14);
    EXPECT_EQ(kinds[NodeKind::kReceive], 14);
  }
}

TEST(ForeignTraces, AnAllReduceOfFourRanksIsFoundByItsPrefix) {
  const std::filesystem::path folder = foreign_traces();
  if (folder.empty()) {
    GTEST_SKIP() << "no ../shared/data/chakra beside the checkout";
  }
  const base::Result<World> world =
      read_world((folder / "all_reduce_4npus_1MB" / "all_reduce").string(), {});
  ASSERT_TRUE(world.ok()) << world.status().message();
  ASSERT_EQ(world->size(), 4U);
  for (const RankGraph& rank : world->ranks) {
    ASSERT_EQ(rank.nodes.size(), 1U);
    EXPECT_EQ(rank.nodes[0].collective, CollectiveKind::kAllReduce);
    EXPECT_EQ(rank.nodes[0].bytes, 1'048'576U);
  }
}

}  // namespace
}  // namespace spillway::emulate
