// SPDX-License-Identifier: Apache-2.0
//
// Exact messages that travel as code: trials find them where links are slow, and no bit of a result
// depends on them.
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <string>

#include "collective/reduction.h"
#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

using collective::DataType;
using collective::Kind;
using collective::Operation;

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kCodeBytes = 1 << 20;  // the least that is surveyed
constexpr base::BitRate kSlowLink = base::bits_per_second(250'000'000);
// By then trials of plans and of code have ended, however many plans there are.
constexpr std::size_t kTrialOperations = 18;

SimulatedGroupOptions slow_group(std::uint16_t ranks) {
  SimulatedGroupOptions options;
  options.ranks = ranks;
  options.rate = kSlowLink;
  options.plan = {};
  options.limits.survey_bytes = 1;  // every operation, one after the other
  return options;
}

// Gaussian values of the type, and everything that a float can be besides.
Bytes values_of(DataType type, std::size_t bytes, std::uint64_t seed) {
  base::RandomSequence random(seed);
  Bytes values(bytes);
  const std::size_t width = element_size(type);
  for (std::size_t i = 0; i < bytes / width; ++i) {
    auto value = static_cast<float>(random.next_gaussian());
    switch (random.next_below(4'000)) {
      case 0:
        value = std::numeric_limits<float>::quiet_NaN();
        break;
      case 1:
        value = -std::numeric_limits<float>::infinity();
        break;
      case 2:
        value = -0.0F;
        break;
      case 3:
        value = std::numeric_limits<float>::denorm_min() * 77;
        break;
      default:
        break;
    }
    if (type == DataType::kFloat16) {
      base::store_le(values.data() + 2 * i, collective::float_to_float16(value));
    } else if (type == DataType::kBfloat16) {
      base::store_le(values.data() + 2 * i, collective::float_to_bfloat16(value));
    } else {
      base::store_le(values.data() + width * i, std::bit_cast<std::uint32_t>(value));
    }
  }
  return values;
}

// Repeats operations at all ranks.
class CodeGroup {
 public:
  CodeGroup(const SimulatedGroupOptions& options, DataType type)
      : options_(options), type_(type), group_(options) {
    for (std::uint16_t rank = 0; rank < options.ranks; ++rank) {
      inputs_.push_back(values_of(type, kCodeBytes, rank + 1));
    }
  }

  // One operation; returns every rank's output.
  std::vector<Bytes> run(const Operation& operation) {
    std::vector<Bytes> outputs;
    for (std::uint16_t rank = 0; rank < options_.ranks; ++rank) {
      const collective::Group group{rank, options_.ranks};
      EXPECT_LE(input_bytes(operation, group), inputs_[rank].size());
      outputs.emplace_back(output_bytes(operation, group));
    }
    for (std::uint16_t rank = 0; rank < options_.ranks; ++rank) {
      EXPECT_TRUE(
          group_.submit(rank, on_buffers(operation, inputs_[rank].data(), outputs[rank].data()))
              .ok());
    }
    ended_ += options_.ranks;
    EXPECT_TRUE(group_.run(ended_));
    for (std::uint16_t rank = 0; rank < options_.ranks; ++rank) {
      const base::Status& status = group_.endings(rank).back().status;
      EXPECT_TRUE(status.ok()) << status.message();
    }
    return outputs;
  }
  Operation all_reduce() const {
    Operation operation;
    operation.type = type_;
    operation.count = kCodeBytes / element_size(type_);
    return operation;
  }
  // All-reduces until trials have ended; all must give the same bits. Returns these.
  std::vector<Bytes> settle() {
    const std::vector<Bytes> first = run(all_reduce());
    for (std::size_t i = 1; i < kTrialOperations; ++i) {
      EXPECT_EQ(run(all_reduce()), first) << i;
    }
    return first;
  }
  const collective::CodeDelivery& code() const { return group_.endings(0).back().report.code; }
  std::vector<Bytes>& inputs() { return inputs_; }
  SimulatedGroup& group() { return group_; }

 private:
  SimulatedGroupOptions options_;
  DataType type_;
  SimulatedGroup group_;
  std::vector<Bytes> inputs_;
  std::size_t ended_ = 0;
};

TEST(CollectiveCode, IsFoundOnSlowLinksAndChangesNoBit) {
  const std::vector<std::pair<DataType, double>> most = {
      {DataType::kFloat32, 0.86}, {DataType::kBfloat16, 0.72}, {DataType::kFloat16, 0.90}};
  for (const auto& [type, share] : most) {
    CodeGroup group(slow_group(3), type);
    const std::vector<Bytes> outputs = group.settle();
    for (const Bytes& output : outputs) {
      EXPECT_EQ(output, outputs[0]);
    }
    EXPECT_GT(group.code().plain_bytes, kCodeBytes / 2) << data_type_name(type);
    EXPECT_LT(static_cast<double>(group.code().bytes),
              share * static_cast<double>(group.code().plain_bytes))
        << data_type_name(type);
  }
}

TEST(CollectiveCode, SurvivesLostAndCutPackets) {
  SimulatedGroupOptions options = slow_group(3);
  options.cut_share = 0.03;
  CodeGroup group(options, DataType::kFloat32);
  add_fault(group.group(), down_link(1), scenario::FaultKind::kLoss, 0.03);
  group.settle();
  // Loss makes trials uncertain, so that any way may win: what counts is that all gave one result,
  // and that code was among them.
  bool was_code = false;
  for (const Ending& ending : group.group().endings(0)) {
    was_code |= ending.report.code.bytes > 0;
  }
  EXPECT_TRUE(was_code);
}

TEST(CollectiveCode, ValuesThatDoNotShrinkTravelAsTheyAre) {
  CodeGroup group(slow_group(2), DataType::kFloat32);
  // Sums of random exponents are uneven, so the other rank adds nothing.
  base::RandomSequence random(1);
  for (std::size_t i = 0; i < kCodeBytes; i += sizeof(float)) {
    const auto bits = static_cast<std::uint32_t>(random.next_word());
    base::store_le(group.inputs()[0].data() + i, bits);
  }
  std::fill(group.inputs()[1].begin(), group.inputs()[1].end(), std::uint8_t{0});
  group.settle();
  for (const Ending& ending : group.group().endings(0)) {
    EXPECT_EQ(ending.report.code.bytes, 0U);
  }
}

TEST(CollectiveCode, IntegersTravelAsTheyAre) {
  CodeGroup group(slow_group(2), DataType::kInt32);
  group.settle();
  for (const Ending& ending : group.group().endings(0)) {
    EXPECT_EQ(ending.report.code.bytes, 0U);
  }
}

TEST(CollectiveCode, OtherOperationsFollowTheAllReduces) {
  CodeGroup group(slow_group(3), DataType::kFloat32);
  std::vector<Operation> operations;
  for (const Kind kind :
       {Kind::kReduceScatter, Kind::kAllGather, Kind::kBroadcast, Kind::kReduce, Kind::kGather}) {
    Operation operation;
    operation.kind = kind;
    operation.count = kCodeBytes / sizeof(float) / 3;
    operations.push_back(operation);
  }
  std::vector<std::vector<Bytes>> plain;
  for (const Operation& operation : operations) {
    plain.push_back(group.run(operation));
    EXPECT_EQ(group.code().bytes, 0U);
  }
  group.settle();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    EXPECT_EQ(group.run(operations[i]), plain[i]) << kind_name(operations[i].kind);
  }
  std::uint64_t coded = 0;
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    const std::vector<Ending>& endings = group.group().endings(rank);
    for (auto ending = endings.end() - 5; ending != endings.end(); ++ending) {
      coded += ending->report.code.bytes > 0 ? 1 : 0;
    }
  }
  EXPECT_GE(coded, 3U + 3U + 1U + 2U + 2U);  // every rank that sends anything
}

// Where the network is faster than any coder, not even a trial is made.
TEST(CollectiveCode, IsNotTriedOnFastLinks) {
  SimulatedGroupOptions options = slow_group(2);
  options.rate = base::gigabits_per_second(100);
  CodeGroup group(options, DataType::kFloat32);
  group.settle();
  for (const Ending& ending : group.group().endings(0)) {
    EXPECT_EQ(ending.report.code.bytes, 0U);
  }
}

}  // namespace
}  // namespace spillway::sim
