// SPDX-License-Identifier: Apache-2.0
#include "collective/capabilities.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "packetize/packet_plan.h"
#include "wire/sum_packet.h"

namespace spillway::collective {
namespace {

constexpr Group kCapabilityGroup{.rank = 1, .world = 4};

Operation reduced_with(Codec codec) {
  Operation operation{.count = 10};
  operation.tolerance = Tolerance{.codec = codec, .precision = 8, .loss_bound_ppm = 0};
  return operation;
}

std::string refusal(const Operation& operation, const Group& group = kCapabilityGroup,
                    const GroupPackets& packets = {}) {
  return check_capabilities(operation, group, packets).message();
}

TEST(Capabilities, RowsHaveTheOrderOfTheCodecs) {
  for (unsigned i = 0; i < kCodecs; ++i) {
    const auto codec = static_cast<Codec>(i);
    EXPECT_STREQ(capabilities_of(codec).codec, codec_name(codec));
    EXPECT_EQ(refusal(reduced_with(codec)), "") << codec_name(codec);
  }
  EXPECT_STREQ(capabilities_of(std::nullopt).codec, "exact");
}

TEST(Capabilities, EveryRefusalNamesARemedy) {
  Operation operation = reduced_with(Codec::kPlanes);
  operation.type = DataType::kInt32;
  EXPECT_EQ(
      refusal(operation),
      "the codec planes is for all_reduce, reduce_scatter or all_gather of floating-point "
      "numbers with sum or average, not for all_reduce of 10 int32 (sum); leave the tolerance "
      "away");
  operation = reduced_with(Codec::kLevels);
  operation.kind = Kind::kReduceScatter;
  EXPECT_EQ(refusal(operation),
            "the codec levels is for all_reduce of floating-point numbers with sum or average, not "
            "for reduce_scatter of 10 float32 (sum); leave the tolerance away");
  operation = reduced_with(Codec::kPlanes);
  operation.kind = Kind::kReduceScatter;
  operation.op = ReduceOp::kMax;
  EXPECT_NE(refusal(operation).find("with sum or average"), std::string::npos);
  operation.op = ReduceOp::kAverage;
  EXPECT_EQ(refusal(operation), "");
  operation.tolerance->least_contributors = 0.5;
  EXPECT_EQ(refusal(operation),
            "only an all_reduce goes on without late ranks, not reduce_scatter of 10 float32 "
            "(average): leave least_contributors away");
  operation = reduced_with(Codec::kPlanes);
  operation.algorithm = Algorithm::kRing;
  EXPECT_EQ(refusal(operation),
            "the codec planes takes the algorithm direct, not ring; leave the algorithm away");
  operation.algorithm = Algorithm::kSwitch;
  EXPECT_NE(refusal(operation).find("the codec levels or blocks"), std::string::npos);
  operation = Operation{.count = 10, .algorithm = Algorithm::kSwitch};
  EXPECT_NE(refusal(operation).find("the codec levels or blocks"), std::string::npos);
  operation = reduced_with(Codec::kLevels);
  operation.tolerance->precision = 5;
  EXPECT_EQ(refusal(operation), "the codec levels has no precision of 5 bits: take 2, 3, 4 and 8");
  operation = reduced_with(Codec::kEntropy);
  operation.tolerance->precision = 17;
  EXPECT_EQ(refusal(operation), "the codec entropy has no precision of 17 bits: take 2 to 16");
  operation = reduced_with(Codec::kEntropy);
  operation.tolerance->loss_bound_ppm = 1;
  EXPECT_EQ(refusal(operation),
            "with the codec entropy all packets arrive whole: set the loss bound to 0, or use "
            "planes, levels or blocks");
  operation = reduced_with(Codec::kEntropy);
  operation.algorithm = Algorithm::kRing;
  EXPECT_EQ(refusal(operation), "");
  operation.kind = Kind::kReduceScatter;
  EXPECT_EQ(refusal(operation),
            "with a codec only an all_reduce goes round a ring, not reduce_scatter of 10 float32 "
            "(sum); leave the algorithm away");
  operation = reduced_with(Codec::kSketch);
  operation.count = (std::size_t{1} << 32) + 1;
  EXPECT_EQ(refusal(operation),
            "the codec sketch is for up to 4294967296 values, not 4294967297; split the tensor");
}

TEST(Capabilities, GroupsLimitCodecs) {
  EXPECT_EQ(refusal(reduced_with(Codec::kLevels), {.rank = 0, .world = SPILLWAY_SUM_RANKS}), "");
  EXPECT_EQ(refusal(reduced_with(Codec::kLevels), {.rank = 0, .world = SPILLWAY_SUM_RANKS + 1}),
            "the codec levels is for groups of at most 128 ranks, and this group has 129; use "
            "planes, entropy or sketch");
  EXPECT_EQ(refusal(reduced_with(Codec::kEntropy), {.rank = 0, .world = kMostEntropyRanks + 1}),
            "the codec entropy is for groups of at most 256 ranks, and this group has 257; use "
            "planes");
  EXPECT_EQ(refusal(reduced_with(Codec::kEntropy), {.rank = 0, .world = 3, .servers = 1}),
            "the codec entropy does not go through parameter servers; use planes, levels or "
            "blocks");
  Operation gather = reduced_with(Codec::kPlanes);
  gather.kind = Kind::kAllGather;
  EXPECT_EQ(refusal(gather), "");
  EXPECT_EQ(refusal(gather, {.rank = 0, .world = 3, .servers = 1}),
            "in a group with parameter servers only an all_reduce has a codec, not all_gather of "
            "10 float32: leave the tolerance away");
}

TEST(Capabilities, EncryptedAndSmallPacketsCarryNoSums) {
  const auto packets = [](bool are_encrypted, unsigned mtu) {
    return GroupPackets{are_encrypted, mtu, packetize::PacketLimits{}.datagram_overhead()};
  };
  const Operation levels = reduced_with(Codec::kLevels);
  EXPECT_EQ(refusal(levels, kCapabilityGroup, packets(false, 1500)), "");
  EXPECT_NE(
      refusal(levels, kCapabilityGroup, packets(true, 1500)).find("leave SPILLWAY_ENCRYPT away"),
      std::string::npos);
  EXPECT_NE(refusal(levels, kCapabilityGroup, packets(false, 1280)).find("MTU is 1280"),
            std::string::npos);
  EXPECT_EQ(refusal(levels, kCapabilityGroup, packets(false, 1460)), "");
  for (const Codec codec : {Codec::kPlanes, Codec::kEntropy, Codec::kSketch}) {
    EXPECT_EQ(refusal(reduced_with(codec), kCapabilityGroup, packets(true, 1280)), "");
  }
  EXPECT_EQ(refusal(Operation{.count = 10}, kCapabilityGroup, packets(true, 1280)), "");
}

// docs/algorithms.md holds the table between two comments.
TEST(Capabilities, TheDocumentHasTheTable) {
  std::ifstream file(std::string(SPILLWAY_TEST_DATA) + "/../../docs/algorithms.md");
  ASSERT_TRUE(file.is_open());
  std::ostringstream text;
  text << file.rdbuf();
  constexpr const char* kBegin = "<!-- capabilities: begin -->\n";
  const std::size_t begin = text.str().find(kBegin);
  const std::size_t end = text.str().find("<!-- capabilities: end -->");
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const std::size_t first = begin + std::strlen(kBegin);
  EXPECT_EQ(text.str().substr(first, end - first), capabilities_markdown())
      << "replace the table by the one that is expected";
}

TEST(Capabilities, JsonHasARowPerCodec) {
  const std::string json = capabilities_json();
  for (const Capabilities& row : capability_table()) {
    EXPECT_NE(json.find(std::string("{\"codec\": \"") + row.codec + '"'), std::string::npos);
  }
  EXPECT_NE(json.find("\"bits\": [2, 3, 4, 8]"), std::string::npos) << json;
  EXPECT_NE(json.find("\"algorithms\": [\"direct\", \"ring\"]"), std::string::npos) << json;
}

}  // namespace
}  // namespace spillway::collective
