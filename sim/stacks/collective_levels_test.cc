// SPDX-License-Identifier: Apache-2.0
//
// All-reduces among hosts that hold several ranks, in the simulated network: coded ones go on
// levels, so that a host's link carries the tensor as if the host were one rank.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "codec/sample_data.h"
#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

using collective::Algorithm;
using collective::Codec;
using collective::Operation;
using collective::Tolerance;

constexpr std::size_t kLevelsCount = 100'003;  // shares of different lengths
constexpr std::size_t kManySegments = 4'400'000;

Tolerance with_bits(std::uint8_t precision, std::uint32_t loss_bound_ppm = 10'000) {
  return {.precision = precision, .gather_precision = precision, .loss_bound_ppm = loss_bound_ppm};
}

Tolerance with_codes(std::uint64_t tensor = 0) {
  return {.codec = Codec::kEntropy, .precision = 8, .loss_bound_ppm = 0, .feedback_tensor = tensor};
}

struct HostShape {
  std::uint16_t hosts = 2;
  std::uint16_t per_host = 2;

  std::uint16_t ranks() const { return static_cast<std::uint16_t>(hosts * per_host); }
  SimulatedGroupOptions options(std::uint64_t seed = 1) const {
    return {.ranks = ranks(), .ranks_per_host = per_host, .seed = seed};
  }
};

class LevelsOfHosts : public testing::TestWithParam<HostShape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, LevelsOfHosts,
                         testing::Values(HostShape{2, 2}, HostShape{2, 3}, HostShape{3, 2},
                                         HostShape{4, 4}),
                         [](const testing::TestParamInfo<HostShape>& info) {
                           return std::to_string(info.param.hosts) + "hostsOf" +
                                  std::to_string(info.param.per_host);
                         });

TEST_P(LevelsOfHosts, PlanesEndWithTheSameBytesAndTheMean) {
  for (const std::uint8_t precision : {5, 16}) {
    SimulatedGroup group(GetParam().options());
    Gradients gradients(GetParam().ranks(), kLevelsCount, 1);
    run_once(group, gradients, tolerant(kLevelsCount, with_bits(precision)), GetParam().ranks());
    expect_same_bits(gradients);
    EXPECT_LT(codec::nmse(gradients.output[0], gradients.mean), precision == 5 ? 2e-2 : 1e-6);
    const collective::OperationReport& report = group.endings(0).back().report;
    EXPECT_EQ(report.algorithm, Algorithm::kHierarchical);
    EXPECT_EQ(report.contributors, GetParam().ranks());
  }
}

TEST_P(LevelsOfHosts, CodedSumsStayWithinAUnitAndTablesAreRemembered) {
  SimulatedGroup group(GetParam().options());
  Gradients gradients(GetParam().ranks(), kLevelsCount, 1);
  EntropySteps steps(group, gradients, Algorithm::kAutomatic);
  for (int step = 0; step < 3; ++step) {
    steps.step({with_codes(7)});
  }
  EXPECT_EQ(steps.tables(), 0U);
  EXPECT_LT(largest_error(gradients), 6.0 / 127);
  EXPECT_EQ(group.endings(0).back().report.contributors, GetParam().ranks());
}

TEST_P(LevelsOfHosts, LostPacketsLeaveReplicasAlike) {
  for (const std::uint64_t seed : {1, 2}) {
    SimulatedGroup group(GetParam().options(seed));
    for (std::uint16_t host = 0; host < GetParam().hosts; ++host) {
      add_fault(group, up_link(host), scenario::FaultKind::kLoss, 0.05);
    }
    Gradients gradients(GetParam().ranks(), kLevelsCount, seed);
    run_once(group, gradients, tolerant(kLevelsCount, with_bits(16, 200'000)), GetParam().ranks());
    expect_same_bits(gradients);
    EXPECT_LT(codec::nmse(gradients.output[0], gradients.mean), 0.1);
    std::uint64_t missing = 0;
    for (std::uint16_t rank = 0; rank < GetParam().ranks(); ++rank) {
      const collective::OperationReport& report = group.endings(rank).back().report;
      missing += report.total().missing;
      for (std::uint16_t peer = 0; peer < GetParam().ranks(); ++peer) {
        // Ranks hear from their mates and from one rank of every other host.
        const bool is_mate = peer / GetParam().per_host == rank / GetParam().per_host;
        const bool is_counterpart = peer % GetParam().per_host == rank % GetParam().per_host;
        EXPECT_EQ(report.peers[peer].packets > 0, peer != rank && (is_mate || is_counterpart));
      }
    }
    EXPECT_GT(missing, 0U);  // or this test shows nothing
  }
}

// Bytes that the first host's link carries for one all-reduce.
std::uint64_t link_bytes(const HostShape& shape, const Operation& operation, std::size_t count) {
  SimulatedGroup group(shape.options());
  Gradients gradients(shape.ranks(), count, 1);
  run_once(group, gradients, operation, shape.ranks());
  return group.network().nic_bytes(0);
}

TEST(Levels, AHostsLinkCarriesTheTensorAsIfTheHostWereOneRank) {
  constexpr std::size_t kValues = 600'000;
  for (const std::uint8_t precision : {5, 16}) {
    const Operation operation = tolerant(kValues, with_bits(precision));
    const double least = 2.0 * 3 / 4 * kValues * precision / 8;
    // Headers and checks take the rest, as with one rank per host.
    const auto alone = static_cast<double>(link_bytes({4, 1}, operation, kValues));
    EXPECT_LT(static_cast<double>(link_bytes({4, 4}, operation, kValues)), 1.03 * alone);
    EXPECT_LT(alone, 1.5 * least);
    Operation direct = operation;
    direct.algorithm = Algorithm::kDirect;
    EXPECT_GT(static_cast<double>(link_bytes({4, 4}, direct, kValues)), 3.5 * alone);
  }
}

TEST(Levels, ExactSumsCrossALinkOnceAndHaveTheBitsOfADirectExchange) {
  constexpr std::size_t kValues = 1'000'000;
  const HostShape shape{2, 4};
  Operation operation;
  operation.count = kValues;
  std::vector<std::vector<float>> results;
  std::vector<std::uint64_t> bytes;
  for (const Algorithm algorithm : {Algorithm::kAutomatic, Algorithm::kDirect}) {
    SimulatedGroup group(shape.options());
    Gradients gradients(shape.ranks(), kValues, 1);
    operation.algorithm = algorithm;
    run_once(group, gradients, operation, shape.ranks());
    expect_same_bits(gradients);
    results.push_back(gradients.output[0]);
    bytes.push_back(group.network().nic_bytes(0));
  }
  EXPECT_EQ(results[0], results[1]);
  const double least = 2.0 * 1 / 2 * kValues * sizeof(float);
  EXPECT_LT(static_cast<double>(bytes[0]), 1.1 * least);
  EXPECT_GT(bytes[1], 2 * bytes[0]);
}

TEST(Levels, ManySegmentsGoOnByTurns) {
  const HostShape shape{2, 2};
  SimulatedGroup group(shape.options());
  Gradients gradients(shape.ranks(), kManySegments, 1);
  // In place: a result may overwrite what was sent.
  for (std::uint16_t rank = 0; rank < shape.ranks(); ++rank) {
    std::vector<float>& values = gradients.input[rank];
    const Operation operation = tolerant(kManySegments, with_bits(8));
    ASSERT_TRUE(group.submit(rank, on_buffers(operation, values.data(), values.data())).ok());
  }
  ASSERT_TRUE(group.run(shape.ranks()));
  for (std::uint16_t rank = 0; rank < shape.ranks(); ++rank) {
    ASSERT_TRUE(group.endings(rank).back().status.ok());
    EXPECT_EQ(gradients.input[rank], gradients.input[0]);
    const collective::OperationReport& report = group.endings(rank).back().report;
    EXPECT_EQ(report.shards.size(), 4U * shape.hosts);  // four segments
    // The rank knows of its own share.
    std::size_t known = 0;
    for (const collective::ShardDelivery& shard : report.shards) {
      known += shard.extent.count;
      EXPECT_EQ(shard.owner % shape.per_host, rank % shape.per_host);
      EXPECT_EQ(shard.contributors, shape.ranks());
    }
    EXPECT_EQ(known, kManySegments / shape.per_host);
  }
  EXPECT_LT(codec::nmse(gradients.input[0], gradients.mean), 1e-3);
}

TEST(Levels, SeveralOperationsAtOnceDoNotMix) {
  const HostShape shape{2, 2};
  SimulatedGroup group(shape.options());
  Gradients one(shape.ranks(), kLevelsCount, 1);
  Gradients other(shape.ranks(), kLevelsCount, 2);
  for (std::uint16_t rank = 0; rank < shape.ranks(); ++rank) {
    ASSERT_TRUE(group.submit(rank, one.at(rank, tolerant(kLevelsCount, with_bits(16)))).ok());
    ASSERT_TRUE(group.submit(rank, other.at(rank, tolerant(kLevelsCount, with_codes()))).ok());
  }
  ASSERT_TRUE(group.run(2U * shape.ranks()));
  expect_same_bits(one);
  expect_same_bits(other);
  EXPECT_LT(codec::nmse(one.output[0], one.mean), 1e-6);
  EXPECT_LT(largest_error(other), 6.0 / 127);
}

TEST(Levels, ErrorFeedbackKeepsWhatTheHostsSumsLack) {
  const HostShape shape{2, 2};
  const auto error_after = [&](std::uint64_t tensor) {
    SimulatedGroup group(shape.options());
    Gradients gradients(shape.ranks(), kLevelsCount, 5, 0.1);
    const Operation operation =
        tolerant(kLevelsCount, {.precision = 2, .gather_precision = 32, .feedback_tensor = tensor});
    std::vector<float> sum(kLevelsCount);
    constexpr int kSteps = 12;
    for (int step = 0; step < kSteps; ++step) {
      run_once(group, gradients, operation, shape.ranks(),
               static_cast<std::size_t>(step) * shape.ranks());
      for (std::size_t i = 0; i < kLevelsCount; ++i) {
        sum[i] += gradients.output[0][i] / kSteps;
      }
    }
    return codec::nmse(sum, gradients.mean);
  };
  EXPECT_LT(error_after(7), error_after(0) / 2);
}

TEST(Levels, ASketchOfMostlyZerosGoesOnLevels) {
  const HostShape shape{2, 2};
  SimulatedGroup group(shape.options());
  Gradients gradients(shape.ranks(), kLevelsCount, 3);
  for (std::vector<float>& input : gradients.input) {
    for (std::size_t i = 0; i < kLevelsCount; ++i) {
      input[i] = i % 50 == 0 ? input[i] : 0.0F;
    }
  }
  for (std::size_t i = 0; i < kLevelsCount; ++i) {
    gradients.mean[i] = i % 50 == 0 ? gradients.mean[i] : 0.0F;
  }
  Tolerance tolerance = with_codes(3);
  tolerance.codec = Codec::kSketch;
  EntropySteps steps(group, gradients, Algorithm::kAutomatic);
  for (int step = 0; step < 3; ++step) {
    steps.step({tolerance});
    EXPECT_LT(largest_error(gradients), 6.0 / 127);
  }
  EXPECT_EQ(group.endings(0).back().report.algorithm, Algorithm::kHierarchical);
}

TEST(Levels, HalfPrecisionTensorsAreRoundedOnTheHostAndAtTheEnd) {
  const HostShape shape{2, 4};
  constexpr std::size_t kHalves = 2 * kLevelsCount;
  SimulatedGroup group(shape.options());
  Operation operation = tolerant(kHalves, with_bits(16));
  operation.type = collective::DataType::kBfloat16;
  operation.op = collective::ReduceOp::kSum;
  const std::vector<std::uint16_t> ones(kHalves, 0x3F80);
  std::vector<std::vector<std::uint16_t>> output(shape.ranks(),
                                                 std::vector<std::uint16_t>(kHalves));
  for (std::uint16_t rank = 0; rank < shape.ranks(); ++rank) {
    ASSERT_TRUE(group.submit(rank, on_buffers(operation, ones.data(), output[rank].data())).ok());
  }
  ASSERT_TRUE(group.run(shape.ranks()));
  EXPECT_EQ(group.endings(0).back().report.algorithm, Algorithm::kHierarchical);
  for (const std::uint16_t value : output[3]) {
    ASSERT_NEAR(value, 0x4100, 1);  // 8.0, give or take the last bit
  }
  EXPECT_EQ(output[3], output[4]);
}

// Ranks 0, 2 and 4 on one host, 1, 3 and 5 on another, and no memory that they share.
TEST(Levels, HostsWhoseRanksAreNumberedInTurnNeedNoSharedMemory) {
  for (const Tolerance& tolerance : {with_bits(16), with_codes()}) {
    SimulatedGroupOptions options{.ranks = 6, .hosts = collective::Hosts({0, 1, 0, 1, 0, 1})};
    SimulatedGroup group(options);
    Gradients gradients(6, kLevelsCount, 1);
    run_once(group, gradients, tolerant(kLevelsCount, tolerance), 6);
    expect_same_bits(gradients);
    EXPECT_LT(largest_error(gradients), 6.0 / 127);
    EXPECT_EQ(group.endings(0).back().report.algorithm, Algorithm::kHierarchical);
  }
}

TEST(Levels, SmallOperationsDeadlinesAndUnevenHostsGoDirectly) {
  const auto algorithm_of = [](const SimulatedGroupOptions& options, const Operation& operation) {
    SimulatedGroup group(options);
    Gradients gradients(options.ranks, operation.count, 1);
    run_once(group, gradients, operation, options.ranks);
    expect_same_bits(gradients);
    return group.endings(0).back().report.algorithm;
  };
  const HostShape shape{2, 2};
  EXPECT_EQ(algorithm_of(shape.options(), tolerant(1'000, with_bits(16))), Algorithm::kDirect);
  Tolerance with_deadline = with_bits(16);
  with_deadline.least_contributors = 0.5;
  EXPECT_EQ(algorithm_of(shape.options(), tolerant(kLevelsCount, with_deadline)),
            Algorithm::kDirect);
  const SimulatedGroupOptions uneven{.ranks = 3, .hosts = collective::Hosts({0, 0, 1})};
  EXPECT_EQ(algorithm_of(uneven, tolerant(kLevelsCount, with_bits(16))), Algorithm::kDirect);
}

TEST(Levels, AHostThatDiesEndsTheOperationEverywhere) {
  for (const Tolerance& tolerance : {with_bits(16), with_codes()}) {
    const HostShape shape{3, 2};
    SimulatedGroup group(shape.options());
    Gradients gradients(shape.ranks(), 1'000'000, 1);
    scenario::Fault fault;
    fault.kind = scenario::FaultKind::kHostDeath;
    fault.host = 1;
    fault.from = base::Instant() + base::microseconds(300);
    ASSERT_TRUE(group.network().add_fault(fault).ok());
    for (std::uint16_t rank = 0; rank < shape.ranks(); ++rank) {
      ASSERT_TRUE(group.submit(rank, gradients.at(rank, tolerant(1'000'000, tolerance))).ok());
    }
    ASSERT_TRUE(group.run(4U, base::seconds(20)));
    for (const std::uint16_t rank : {0, 1, 4, 5}) {
      const base::Status& status = group.endings(rank).back().status;
      EXPECT_EQ(status.code(), base::StatusCode::kPeerFailed) << status.message();
      EXPECT_TRUE(status.message().find("rank 2") != std::string::npos ||
                  status.message().find("rank 3") != std::string::npos)
          << status.message();
    }
  }
}

TEST(Levels, ARankThatLeavesTooEarlyIsNamed) {
  const HostShape shape{2, 2};
  SimulatedGroup group(shape.options());
  Gradients gradients(shape.ranks(), kLevelsCount, 1);
  for (const std::uint16_t rank : {0, 1, 2}) {
    ASSERT_TRUE(group.submit(rank, gradients.at(rank, tolerant(kLevelsCount, with_bits(16)))).ok());
  }
  group.leave(3);
  ASSERT_TRUE(group.run(3U, base::seconds(20)));
  for (const std::uint16_t rank : {0, 1, 2}) {
    const base::Status& status = group.endings(rank).back().status;
    EXPECT_EQ(status.code(), base::StatusCode::kPeerFailed) << status.message();
    EXPECT_NE(status.message().find("rank 3"), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace spillway::sim
