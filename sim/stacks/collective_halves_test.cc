// SPDX-License-Identifier: Apache-2.0
//
// Reduce-scatters and all-gathers with fewer bits in the simulated network: owners get sums of what
// arrived, and all ranks get the same bytes of every part.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "codec/sample_data.h"
#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

using collective::DataType;
using collective::Kind;
using collective::Operation;
using collective::ReduceOp;
using collective::Tolerance;

// `count` elements per rank, in the operation's words.
Operation half(Kind kind, std::size_t count, const Tolerance& tolerance = {}) {
  Operation operation = tolerant(count, tolerance);
  operation.kind = kind;
  return operation;
}

// The part of every rank, one after the other.
std::vector<float> joined_parts(const std::vector<std::vector<float>>& parts, std::size_t count) {
  std::vector<float> all;
  for (const std::vector<float>& part : parts) {
    all.insert(all.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return all;
}

// A reduce-scatter of gradients of ranks * count elements, of which each rank gets count.
std::vector<float> scattered(SimulatedGroup& group, Gradients& gradients,
                             const Operation& operation, std::uint16_t ranks,
                             std::size_t ended_before = 0) {
  run_once(group, gradients, operation, ranks, ended_before);
  return joined_parts(gradients.output, operation.count);
}

// An all-gather of each rank's first count elements.
struct Gathering {
  Gathering(std::uint16_t ranks, std::size_t count, std::uint64_t seed)
      : gradients(ranks, count, seed) {
    for (std::vector<float>& output : gradients.output) {
      output.resize(ranks * count);
    }
    expected = joined_parts(gradients.input, count);
  }

  Gradients gradients;
  std::vector<float> expected;
};

// ------------------------------------------------------------------ any size, any number of ranks

TEST(Halves, AnySizeGoesWithAnyNumberOfRanks) {
  for (const std::uint16_t ranks : {2, 3, 7, 20}) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{9'001}}) {
      const std::string name = std::to_string(ranks) + " ranks, " + std::to_string(count);
      SimulatedGroup group({.ranks = ranks, .seed = count + 1, .cut_share = 0.2});
      lose_everywhere(group, ranks, 0.02);
      Gradients gradients(ranks, ranks * count, 3);
      const Tolerance tolerance{.precision = 16, .gather_precision = 12, .loss_bound_ppm = 50'000};
      const std::vector<float> sums =
          scattered(group, gradients, half(Kind::kReduceScatter, count, tolerance), ranks);
      ASSERT_EQ(sums.size(), gradients.mean.size()) << name;
      Gathering gathering(ranks, count, 4);
      run_once(group, gathering.gradients, half(Kind::kAllGather, count, tolerance), ranks, ranks);
      expect_same_bits(gathering.gradients);
      if (count > 0) {
        EXPECT_LT(codec::nmse(sums, gradients.mean), 0.6) << name;
        EXPECT_LT(codec::nmse(gathering.gradients.output[0], gathering.expected), 1e-6) << name;
      }
    }
  }
}

// ------------------------------------------------------------------ reduce-scatter

TEST(ReduceScatter, WithoutLossTheErrorIsThatOfOneCoding) {
  for (const bool sums : {false, true}) {
    SimulatedGroup group({.ranks = 4});
    Gradients gradients(4, 100'000, 1);
    Operation operation =
        half(Kind::kReduceScatter, 25'000, {.precision = 8, .gather_precision = 1});
    operation.op = sums ? ReduceOp::kSum : ReduceOp::kAverage;
    std::vector<float> result = scattered(group, gradients, operation, 4);
    for (float& value : result) {
      value /= sums ? 4.0F : 1.0F;
    }
    // The owner's own part is not coded, and gather_precision is of no matter.
    EXPECT_LT(codec::nmse(result, gradients.mean), 4.5e-5);
    for (std::uint16_t rank = 0; rank < 4; ++rank) {
      const collective::OperationReport& report = group.endings(rank).back().report;
      ASSERT_EQ(report.shards.size(), 1U);
      EXPECT_EQ(report.shards[0].owner, rank);
      EXPECT_EQ(report.shards[0].extent.first, rank * 25'000U);
      EXPECT_EQ(report.contributors, 4);
    }
  }
}

TEST(ReduceScatter, IsHalfOfAnAllReduce) {
  const auto packets_of = [](Kind kind, std::size_t count) {
    SimulatedGroup group({.ranks = 4});
    Gradients gradients(4, 200'000, 1);
    run_once(group, gradients, half(kind, count, {.precision = 5, .gather_precision = 5}), 4);
    return group.endings(0).back().report.total().packets;
  };
  EXPECT_EQ(2 * packets_of(Kind::kReduceScatter, 50'000), packets_of(Kind::kAllReduce, 200'000));
  EXPECT_EQ(2 * packets_of(Kind::kAllGather, 50'000), packets_of(Kind::kAllReduce, 200'000));
}

// Errors of single steps are independent, so that the average of many has the error of one over
// their number. A bias would come on top.
TEST(ReduceScatter, TheMeanIsUnbiasedUnderLossAndTrimming) {
  constexpr std::uint16_t kRanks = 4;
  constexpr std::size_t kCount = 4096;  // enough packets that some may stay missing
  constexpr int kSteps = 500;
  SimulatedGroup group({.ranks = kRanks, .seed = 11, .cut_share = 0.5});
  lose_everywhere(group, kRanks, 0.1);
  Gradients gradients(kRanks, kRanks * kCount, 5);
  const Operation operation = half(Kind::kReduceScatter, kCount, {.loss_bound_ppm = 400'000});
  std::vector<float> average(kRanks * kCount);
  double error_of_one = 0;
  std::uint64_t missing = 0;
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> result =
        scattered(group, gradients, operation, kRanks, static_cast<std::size_t>(step) * kRanks);
    for (std::size_t i = 0; i < result.size(); ++i) {
      average[i] += result[i] / kSteps;
    }
    error_of_one += codec::nmse(result, gradients.mean) / kSteps;
    missing += group.endings(0).back().report.total().missing;
  }
  EXPECT_GT(missing, 0U);  // or this test shows nothing
  EXPECT_LT(codec::nmse(average, gradients.mean), 1.3 * error_of_one / kSteps);
}

TEST(ReduceScatter, ErrorFeedbackDelaysWhatIsLost) {
  constexpr std::uint16_t kRanks = 3;
  constexpr std::size_t kCount = 1500;
  const auto error_after = [&](std::uint64_t tensor) {
    SimulatedGroup group({.ranks = kRanks});
    lose_everywhere(group, kRanks, 0.05);
    Gradients gradients(kRanks, kRanks * kCount, 5, 0.1);
    const Operation operation =
        half(Kind::kReduceScatter, kCount,
             {.precision = 2, .loss_bound_ppm = 200'000, .feedback_tensor = tensor});
    std::vector<float> sum(kRanks * kCount);
    constexpr int kSteps = 20;
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<float> result =
          scattered(group, gradients, operation, kRanks, static_cast<std::size_t>(step) * kRanks);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += result[i] / kSteps;
      }
    }
    return codec::nmse(sum, gradients.mean);
  };
  EXPECT_LT(error_after(7), error_after(0) / 2);
}

TEST(ReduceScatter, PartsOfManyPiecesOfHalfPrecisionWork) {
  constexpr std::uint16_t kRanks = 3;
  constexpr std::size_t kCount = 400'000;  // more pieces than are under way at a time
  SimulatedGroup group(
      {.ranks = kRanks, .plan = {.piece_bytes = 8 * 1024, .window = 4, .message_bytes = 1 << 20}});
  lose_everywhere(group, kRanks, 0.01);
  Operation operation = half(Kind::kReduceScatter, kCount, {.feedback_tensor = 3});
  operation.type = DataType::kBfloat16;
  operation.op = ReduceOp::kSum;
  const std::vector<std::uint16_t> ones(kRanks * kCount, 0x3F80);
  std::vector<std::vector<std::uint16_t>> output(kRanks, std::vector<std::uint16_t>(kCount));
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(group.submit(rank, on_buffers(operation, ones.data(), output[rank].data())).ok());
  }
  ASSERT_TRUE(group.run(kRanks));
  for (const std::vector<std::uint16_t>& values : output) {
    double sum = 0;
    for (const std::uint16_t value : values) {
      sum += value == 0x4040 ? 1.0 : 0.0;  // 3.0
    }
    EXPECT_GT(sum / kCount, 0.5);
  }
}

// Ranks are done when their contributions are coded, and may be ahead of those that add them.
TEST(ReduceScatter, ManyInARowWaitForALateRank) {
  constexpr std::uint16_t kRanks = 4;
  constexpr std::size_t kCount = 20'000;
  constexpr std::size_t kOperations = 40;
  for (const std::uint64_t tensor : {0, 9}) {
    SimulatedGroup group({.ranks = kRanks, .rate = base::gigabits_per_second(1)});
    Gradients gradients(kRanks, kRanks * kCount, 1);
    const Operation operation = half(Kind::kReduceScatter, kCount, {.feedback_tensor = tensor});
    for (std::size_t i = 0; i < kOperations; ++i) {
      for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
        const base::Duration late = base::milliseconds(rank == 2 ? 200 : 0);
        group.submit_at(base::Instant(late), rank, gradients.at(rank, operation));
      }
    }
    ASSERT_TRUE(group.run(kRanks * kOperations));
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      for (const Ending& ending : group.endings(rank)) {
        ASSERT_TRUE(ending.status.ok()) << ending.status.message();
      }
    }
    EXPECT_LT(codec::nmse(joined_parts(gradients.output, kCount), gradients.mean), 0.01);
  }
}

// In the middle of the operation the last rank's link goes down for good.
void expect_the_dead_rank_is_named(const Operation& operation) {
  SimulatedGroup group({.ranks = 3, .rate = base::gigabits_per_second(1)});
  Gathering buffers(3, 300'000, 1);
  for (const std::string& link : {up_link(2), down_link(2)}) {
    add_fault(group, link, scenario::FaultKind::kDown, 1.0, base::Instant(base::milliseconds(1)));
  }
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(group.submit(rank, buffers.gradients.at(rank, operation)).ok());
  }
  ASSERT_TRUE(group.run(3));
  for (std::uint16_t rank = 0; rank < 2; ++rank) {
    const base::Status& status = group.endings(rank).back().status;
    EXPECT_EQ(status.code(), base::StatusCode::kPeerFailed) << status.message();
    EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status.message();
  }
}

TEST(Halves, ARankThatDiesIsNamed) {
  expect_the_dead_rank_is_named(half(Kind::kReduceScatter, 100'000));
  expect_the_dead_rank_is_named(half(Kind::kAllGather, 100'000));
}

// ------------------------------------------------------------------ all-gather

TEST(AllGather, AllRanksDecodeTheSameBytesWhateverIsLost) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    SimulatedGroup group({.ranks = 5, .seed = seed, .cut_share = 0.3});
    lose_everywhere(group, 5, 0.05);
    Gathering gathering(5, 60'000, seed);
    run_once(group, gathering.gradients,
             half(Kind::kAllGather, 60'000, {.gather_precision = 8, .loss_bound_ppm = 500'000}), 5);
    expect_same_bits(gathering.gradients);
    // Nothing is lost: the error is that of 8 bits.
    EXPECT_LT(codec::nmse(gathering.gradients.output[0], gathering.expected), 6e-5);
  }
}

TEST(AllGather, ErrorFeedbackSendsWhatCodingTookAwayTheNextTime) {
  constexpr std::size_t kCount = 2000;
  const auto error_after = [&](std::uint64_t tensor) {
    SimulatedGroup group({.ranks = 2});
    Gathering gathering(2, kCount, 5);
    const Operation operation =
        half(Kind::kAllGather, kCount, {.gather_precision = 3, .feedback_tensor = tensor});
    std::vector<float> sum(2 * kCount);
    constexpr int kSteps = 20;
    for (int step = 0; step < kSteps; ++step) {
      run_once(group, gathering.gradients, operation, 2, static_cast<std::size_t>(step) * 2);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += gathering.gradients.output[0][i] / kSteps;
      }
    }
    return codec::nmse(sum, gathering.expected);
  };
  EXPECT_LT(error_after(7), error_after(0) / 2);
}

// ------------------------------------------------------------------ entropy-coded

Tolerance coded(std::uint8_t bits, std::uint64_t tensor = 0, bool predicts_scale = false) {
  return {.codec = collective::Codec::kEntropy,
          .precision = bits,
          .loss_bound_ppm = 0,
          .feedback_tensor = tensor,
          .predicts_scale = predicts_scale};
}

TEST(CodedHalves, AnySizeGoesWithAnyNumberOfRanks) {
  for (const std::uint16_t ranks : {2, 3, 7, 20}) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{9'001}}) {
      const std::string name = std::to_string(ranks) + " ranks, " + std::to_string(count);
      SimulatedGroup group({.ranks = ranks, .seed = count + 1});
      lose_everywhere(group, ranks, 0.02);
      Gradients gradients(ranks, ranks * count, 3);
      const std::vector<float> sums =
          scattered(group, gradients, half(Kind::kReduceScatter, count, coded(16)), ranks);
      Gathering gathering(ranks, count, 4);
      run_once(group, gathering.gradients, half(Kind::kAllGather, count, coded(16)), ranks, ranks);
      expect_same_bits(gathering.gradients);
      if (count > 0) {
        EXPECT_LT(codec::nmse(sums, gradients.mean), 1e-6) << name;
        EXPECT_LT(codec::nmse(gathering.gradients.output[0], gathering.expected), 1e-6) << name;
      }
    }
  }
}

// From the second step on no message has a table, in either half.
TEST(CodedHalves, TablesAreRememberedFromStepToStep) {
  constexpr std::uint16_t kRanks = 4;
  constexpr std::size_t kCount = 50'000;
  for (const Kind kind : {Kind::kReduceScatter, Kind::kAllGather}) {
    SimulatedGroup group(entropy_group_of(kRanks));
    Gathering buffers(kRanks, kCount, 1);
    for (std::vector<float>& input : buffers.gradients.input) {
      input.resize(kRanks * kCount, 0.5F);
    }
    std::vector<std::uint64_t> bytes;
    std::vector<std::uint64_t> tables;
    for (std::size_t step = 0; step < 4; ++step) {
      run_once(group, buffers.gradients, half(kind, kCount, coded(8, 5, step > 1)), kRanks,
               step * kRanks);
      const collective::EntropyDelivery& coding = group.endings(0).back().report.entropy;
      bytes.push_back(coding.bytes());
      tables.push_back(coding.tables());
    }
    EXPECT_EQ(tables.back(), 0U) << collective::kind_name(kind);
    EXPECT_LE(bytes.back(), bytes.front()) << collective::kind_name(kind);
    const std::size_t coded_values = kind == Kind::kAllGather ? kCount : (kRanks - 1) * kCount;
    EXPECT_LT(8 * bytes.back(), 8 * coded_values) << collective::kind_name(kind);
  }
}

TEST(CodedHalves, ErrorFeedbackDelaysWhatRoundingTookAway) {
  constexpr std::uint16_t kRanks = 3;
  constexpr std::size_t kCount = 1500;
  const auto error_after = [&](Kind kind, std::uint64_t tensor) {
    SimulatedGroup group({.ranks = kRanks});
    Gathering buffers(kRanks, kRanks * kCount, 5);
    const std::vector<float>& expected =
        kind == Kind::kAllGather ? buffers.expected : buffers.gradients.mean;
    const Operation operation =
        half(kind, kind == Kind::kAllGather ? kRanks * kCount : kCount, coded(4, tensor));
    std::vector<float> sum(expected.size());
    constexpr int kSteps = 20;
    for (int step = 0; step < kSteps; ++step) {
      run_once(group, buffers.gradients, operation, kRanks,
               static_cast<std::size_t>(step) * kRanks);
      const std::vector<float> result = kind == Kind::kAllGather
                                            ? buffers.gradients.output[1]
                                            : joined_parts(buffers.gradients.output, kCount);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += result[i] / kSteps;
      }
    }
    return codec::nmse(sum, expected);
  };
  for (const Kind kind : {Kind::kReduceScatter, Kind::kAllGather}) {
    EXPECT_LT(error_after(kind, 7), error_after(kind, 0) / 2) << collective::kind_name(kind);
  }
}

TEST(CodedHalves, ARankThatDiesIsNamed) {
  for (const Kind kind : {Kind::kReduceScatter, Kind::kAllGather}) {
    expect_the_dead_rank_is_named(half(kind, 100'000, coded(8)));
  }
}

}  // namespace
}  // namespace spillway::sim
