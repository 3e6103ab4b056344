// SPDX-License-Identifier: Apache-2.0
//
// All-reduces of tensors in device memory, where the device runs the kernels on a CPU: ranks with a
// device and without get the same bytes. cuda_test.cc tests a real GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "comm/job_testing.h"
#include "gpu/emulated_tensor_testing.h"
#include "gpu/message_testing.h"

namespace spillway::gpu {
namespace {

using collective::Operation;
using comm::testing_job::run_job;
using comm::testing_job::test_patience;

TEST(DeviceTensor, AddsUpToTheCpusBits) {
  const SumCase sum(20'001);
  std::vector<float> output(sum.own.size());
  EmulatedTensor tensor(sum.own.data(), output.data());
  sum.check(tensor, output);
}

TEST(DeviceTensor, KeepsWhatItIsOwedToTheCpusBits) {
  for (const bool is_finite : {true, false}) {
    const ResidualCase owed(20'001, is_finite);
    EmulatedTensor tensor(owed.own.data(), nullptr);
    std::vector<float> memory = owed.before;
    owed.check(tensor, memory.data(), [&] { return memory; });
  }
}

struct RankResult {
  std::vector<float> values;
  base::Status status;
};

std::vector<RankResult> reduce(
    std::uint16_t world, std::size_t count,
    const std::function<std::shared_ptr<collective::DeviceTensor>(std::uint16_t,
                                                                  std::vector<float>&)>& device_of,
    const std::optional<collective::Tolerance>& tolerance = collective::Tolerance{
        .precision = 12, .loss_bound_ppm = 0}) {
  std::vector<RankResult> results(world);
  run_job(world, 0, [&](comm::Communicator& rank) {
    RankResult& result = results[rank.rank()];
    result.values = codec::gaussian_values(count, rank.rank() + 1U);
    Operation operation{.op = collective::ReduceOp::kAverage,
                        .count = count,
                        .tolerance = tolerance,
                        .input = result.values.data(),
                        .output = result.values.data()};
    operation.device = device_of(static_cast<std::uint16_t>(rank.rank()), result.values);
    const auto request = rank.submit(operation);
    ASSERT_TRUE(request.ok()) << request.status().message();
    const auto ended = (*request)->wait(test_patience());
    ASSERT_TRUE(ended.has_value());
    result.status = *ended;
  });
  return results;
}

TEST(DeviceTensor, RanksWithAndWithoutADeviceEndWithTheSameBytes) {
  constexpr std::size_t kCount = 300'001;
  const auto results = reduce(3, kCount, [](std::uint16_t rank, std::vector<float>& values) {
    return rank == 2 ? nullptr : std::make_shared<EmulatedTensor>(values.data(), values.data());
  });
  std::vector<float> exact(kCount);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(results[rank].status.ok()) << results[rank].status.message();
    EXPECT_TRUE(results[rank].values == results[0].values) << "rank " << rank;
    const std::vector<float> part = codec::gaussian_values(kCount, rank + 1U);
    for (std::size_t i = 0; i < kCount; ++i) {
      exact[i] += part[i] / 3.0F;
    }
  }
  EXPECT_LT(codec::nmse(results[0].values, exact), 1e-4);
}

// Runs steps with the same gradients at three ranks, the last without a device. With feedback,
// their outputs add up to steps times the average, except for the residual. Returns the deviation;
// all ranks have the same outputs.
double error_after_steps(std::size_t count, const collective::Tolerance& tolerance) {
  constexpr int kSteps = 12;
  std::vector<std::vector<float>> totals(3, std::vector<float>(count));
  run_job(3, 0, [&](comm::Communicator& rank) {
    const std::vector<float> gradient = codec::gaussian_values(count, rank.rank() + 1U);
    for (int step = 0; step < kSteps; ++step) {
      std::vector<float> values = gradient;
      Operation operation{.op = collective::ReduceOp::kAverage,
                          .count = count,
                          .tolerance = tolerance,
                          .input = values.data(),
                          .output = values.data()};
      if (rank.rank() != 2) {
        operation.device = std::make_shared<EmulatedTensor>(values.data(), values.data());
      }
      const auto request = rank.submit(operation);
      ASSERT_TRUE(request.ok()) << request.status().message();
      ASSERT_TRUE((*request)->wait(test_patience()).value().ok());
      for (std::size_t i = 0; i < count; ++i) {
        totals[rank.rank()][i] += values[i] / kSteps;
      }
    }
  });
  std::vector<float> exact(count);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(totals[rank] == totals[0]) << "rank " << rank;
    const std::vector<float> part = codec::gaussian_values(count, rank + 1U);
    for (std::size_t i = 0; i < count; ++i) {
      exact[i] += part[i] / 3.0F;
    }
  }
  return codec::nmse(totals[0], exact);
}

TEST(DeviceTensor, ErrorFeedbackWorksOnADeviceAsItDoesOnTheHost) {
  const collective::Tolerance planes{
      .precision = 2, .gather_precision = 16, .loss_bound_ppm = 0, .feedback_tensor = 7};
  // One step is off by about 0.1, and without feedback twelve are by a twelfth of that.
  EXPECT_LT(error_after_steps(100'001, planes), 0.003);
}

// Levels, which ranks add without decoding them: with feedback, and the same as on the CPU alone.
TEST(DeviceTensor, SumsOfLevelsAreTheSameBytesAtAllRanks) {
  constexpr std::size_t kCount = 200'001;
  const collective::Tolerance levels{
      .codec = collective::Codec::kLevels, .precision = 8, .loss_bound_ppm = 0};
  const auto on_cpus = reduce(
      3, kCount, [](std::uint16_t, std::vector<float>&) { return nullptr; }, levels);
  const auto mixed = reduce(
      3, kCount,
      [](std::uint16_t rank, std::vector<float>& values) {
        return rank == 0 ? nullptr : std::make_shared<EmulatedTensor>(values.data(), values.data());
      },
      levels);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(on_cpus[rank].status.ok()) << on_cpus[rank].status.message();
    ASSERT_TRUE(mixed[rank].status.ok()) << mixed[rank].status.message();
    EXPECT_TRUE(mixed[rank].values == mixed[0].values) << "rank " << rank;
  }
  EXPECT_LT(codec::nmse(mixed[0].values, on_cpus[0].values), 1e-2);
}

TEST(DeviceTensor, ErrorFeedbackOfLevelsWorksOnADeviceAsItDoesOnTheHost) {
  const collective::Tolerance levels{.codec = collective::Codec::kLevels,
                                     .precision = 2,
                                     .loss_bound_ppm = 0,
                                     .feedback_tensor = 7,
                                     .predicts_scale = true};
  EXPECT_LT(error_after_steps(50'001, levels), 0.01);
}

// An exact all-reduce, which the host carries out: in place or not, with one of three ranks without
// a device.
TEST(DeviceTensor, OfAnExactOperationIsCopiedToTheHostAndBack) {
  constexpr std::size_t kCount = 1'500'001;  // several pieces at every rank
  for (const bool in_place : {true, false}) {
    std::vector<std::vector<float>> outputs(3);
    run_job(3, 0, [&](comm::Communicator& rank) {
      std::vector<float> input = codec::gaussian_values(kCount, rank.rank() + 1U);
      std::vector<float>& output = outputs[rank.rank()];
      output = in_place ? input : std::vector<float>(kCount);
      Operation operation{.count = kCount,
                          .input = in_place ? output.data() : input.data(),
                          .output = output.data()};
      if (rank.rank() != 1) {
        operation.device = std::make_shared<EmulatedTensor>(
            static_cast<const float*>(operation.input), output.data(), kCount);
      }
      const auto request = rank.submit(operation);
      ASSERT_TRUE(request.ok()) << request.status().message();
      ASSERT_TRUE((*request)->wait(test_patience()).value().ok());
      EXPECT_EQ((*request)->report().device_bytes, 0U);  // nothing was coded
    });
    const std::vector<float> parts[] = {codec::gaussian_values(kCount, 1),
                                        codec::gaussian_values(kCount, 2),
                                        codec::gaussian_values(kCount, 3)};
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(outputs[0][i], parts[0][i] + parts[1][i] + parts[2][i]) << i;
    }
    EXPECT_TRUE(outputs[1] == outputs[0] && outputs[2] == outputs[0]);
  }
}

// A device whose memory is full.
class FullDevice final : public collective::DeviceTensor {
 public:
  std::uint8_t* host_input() override { return host_.data(); }
  std::uint8_t* host_output() override { return host_.data(); }
  base::Status copy_to_host(std::size_t, std::size_t) override { return full(); }
  base::Status copy_to_device(std::size_t, std::size_t) override { return full(); }
  base::Result<packetize::KeptPlanes> make_planes(const packetize::PacketPlan& plan) override {
    return packetize::KeptPlanes::make(plan);
  }
  base::Result<std::shared_ptr<float[]>> make_residual(std::size_t) override { return full(); }
  base::Status encode(const collective::Extent&, const packetize::PacketPlan&, std::uint64_t,
                      float*, packetize::KeptPlanes&) override {
    return full();
  }
  base::Status settle(const collective::Extent&, const packetize::PacketPlan&, std::uint64_t,
                      const packetize::KeptPlanes&, std::span<const std::uint16_t>,
                      float*) override {
    return full();
  }
  base::Status add_up(const collective::Extent&, const collective::DeviceSum&,
                      packetize::KeptPlanes&) override {
    return full();
  }
  base::Status decode(const collective::Extent&, const packetize::PacketPlan&, std::uint64_t,
                      const packetize::KeptPlanes&) override {
    return full();
  }
  base::Result<std::shared_ptr<std::uint64_t[]>> make_words(std::size_t) override { return full(); }
  base::Status measure(const collective::DeviceLevels&, const float*,
                       std::span<codec::RotatedRow>) override {
    return full();
  }
  base::Status round(const collective::DeviceLevels&, const float*,
                     std::span<const codec::RotatedRow>, std::span<const float>,
                     std::span<std::uint64_t>, std::size_t&) override {
    return full();
  }
  base::Status decode_sums(const collective::DeviceLevels&,
                           const collective::DeviceLevelSums&) override {
    return full();
  }
  base::Status settle_levels(const collective::DeviceLevels&, const collective::DeviceLevelSums&,
                             const std::vector<bool>&, float*) override {
    return full();
  }

 private:
  static base::Status full() {
    return {base::StatusCode::kLimitExceeded, "the GPU's memory is full"};
  }
  std::vector<std::uint8_t> host_ = std::vector<std::uint8_t>(400'000);
};

TEST(DeviceTensor, OneThatFailsEndsTheOperationWithItsSentence) {
  const std::optional<collective::Tolerance> tolerances[] = {
      collective::Tolerance{.codec = collective::Codec::kPlanes, .precision = 8},
      collective::Tolerance{.codec = collective::Codec::kLevels, .precision = 8},
      std::nullopt,
  };
  for (const std::optional<collective::Tolerance>& tolerance : tolerances) {
    const auto results = reduce(
        2, 100'000,
        [](std::uint16_t rank, std::vector<float>&) -> std::shared_ptr<collective::DeviceTensor> {
          return rank == 1 ? std::make_shared<FullDevice>() : nullptr;
        },
        tolerance);
    EXPECT_FALSE(results[0].status.ok());
    EXPECT_EQ(results[1].status.code(), base::StatusCode::kLimitExceeded);
    EXPECT_NE(results[1].status.message().find("memory is full"), std::string::npos);
  }
}

TEST(DeviceTensor, IsRefusedWhereNoDeviceCodes) {
  std::vector<float> values(10);
  const collective::Group group{.rank = 0, .world = 2};
  Operation operation{.count = 10, .input = values.data(), .output = values.data()};
  operation.device = std::make_shared<FullDevice>();
  EXPECT_TRUE(collective::validate(operation, group).ok());
  operation.kind = collective::Kind::kReduce;
  EXPECT_FALSE(collective::validate(operation, group).ok());
  operation.kind = collective::Kind::kAllReduce;
  operation.tolerance = collective::Tolerance{};
  EXPECT_TRUE(collective::validate(operation, group).ok());
  EXPECT_FALSE(collective::validate(operation, {.rank = 0, .world = 1}).ok());
  operation.tolerance = collective::Tolerance{.least_contributors = 0.5};
  EXPECT_FALSE(collective::validate(operation, group).ok());
  operation.tolerance = collective::Tolerance{.codec = collective::Codec::kLevels, .precision = 4};
  EXPECT_TRUE(collective::validate(operation, group).ok());
  operation.tolerance = collective::Tolerance{.codec = collective::Codec::kBlocks};
  EXPECT_FALSE(collective::validate(operation, group).ok());
}

}  // namespace
}  // namespace spillway::gpu
