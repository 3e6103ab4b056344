// SPDX-License-Identifier: Apache-2.0
//
// The kernels' sources on a CPU against the scalar oracle, so that hosts without a GPU check the
// bits too. tests/gpu/cuda_test.cc does the same on a GPU.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "codec/rotation.h"
#include "collective/half_float.h"
#include "gpu/block_testing.h"
#include "gpu/message_testing.h"

namespace spillway::gpu {
namespace {

constexpr std::uint64_t kKey = 0x0123456789ABCDEF;

CodedMessage encode_on_cpu(const packetize::PacketPlan& plan, const void* values,
                           void (*kernel)(EncodeArguments) = spillway_encode_float32,
                           ThreadOrder order = ThreadOrder::kForward) {
  static const CodeTables tables = make_code_tables();
  CodedMessage message;
  message.payload.assign(packetize::plane_memory_bytes(plan), 0);
  message.rows.resize(plan.layout().row_count());
  for (const Launch& launch : launches_of(plan.layout(), 0, plan.layout().row_count())) {
    run_on_cpu(kernel, launch,
               EncodeArguments{values, message.payload.data(), message.rows.data(), nullptr,
                               &tables, kKey, shape_of(plan), launch.rows},
               order);
  }
  return message;
}

void decode_on_cpu(const packetize::PacketPlan& plan, const CodedMessage& message,
                   codec::Estimate estimate, Store store, void* values,
                   void (*kernel)(DecodeArguments) = spillway_decode_float32,
                   ThreadOrder order = ThreadOrder::kForward) {
  static const CodeTables tables = make_code_tables();
  for (const Launch& launch : launches_of(plan.layout(), 0, plan.layout().row_count())) {
    run_on_cpu(kernel, launch,
               DecodeArguments{message.payload.data(), message.received.data(), message.rows.data(),
                               values, &tables, kKey, shape_of(plan), launch.rows,
                               static_cast<unsigned>(estimate), store},
               order);
  }
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

void expect_same_message(const CodedMessage& message, const CodedMessage& expected) {
  ASSERT_EQ(message.rows.size(), expected.rows.size());
  for (std::size_t row = 0; row < expected.rows.size(); ++row) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(message.rows[row].scale),
              std::bit_cast<std::uint32_t>(expected.rows[row].scale))
        << "row " << row;
    EXPECT_EQ(message.rows[row].rotations, expected.rows[row].rotations) << "row " << row;
  }
  EXPECT_TRUE(message.payload == expected.payload);
}

TEST(GpuKernels, EncodeToTheOraclesBits) {
  for (const MessageCase& one : message_cases()) {
    SCOPED_TRACE(one.name());
    const packetize::PacketPlan plan = one.plan();
    const std::vector<float> tensor = mixed_tensor(one.length, plan.layout().row_log2(), 7);
    const CodedMessage expected = oracle_encode(plan, kKey, tensor);
    expect_same_message(encode_on_cpu(plan, tensor.data()), expected);
  }
}

TEST(GpuKernels, DecodeToTheOraclesBits) {
  for (const MessageCase& one : message_cases()) {
    SCOPED_TRACE(one.name());
    const packetize::PacketPlan plan = one.plan();
    const std::vector<float> tensor = mixed_tensor(one.length, plan.layout().row_log2(), 8);
    CodedMessage message = oracle_encode(plan, kKey, tensor);
    for (const std::uint64_t losses : {0, 1, 2}) {
      if (losses > 0) {
        lose_some(message, losses);
      }
      for (const codec::Estimate estimate :
           {codec::Estimate::kUnbiased, codec::Estimate::kMinimumError}) {
        std::vector<float> values(one.length, 77.0F);
        decode_on_cpu(plan, message, estimate, Store::kWrite, values.data());
        EXPECT_TRUE(same_bits(values, oracle_decode(plan, kKey, message, estimate)));
      }
    }
  }
}

TEST(GpuKernels, AddDecodedRowsToWhatIsThere) {
  const packetize::PacketPlan plan = MessageCase{20'001, 12, 8}.plan();
  const std::vector<float> tensor = codec::gaussian_values(20'001, 3);
  const CodedMessage message = oracle_encode(plan, kKey, tensor);
  std::vector<float> sum = codec::gaussian_values(20'001, 4);
  std::vector<float> expected = oracle_decode(plan, kKey, message, codec::Estimate::kUnbiased);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    expected[i] = sum[i] + expected[i];
  }
  decode_on_cpu(plan, message, codec::Estimate::kUnbiased, Store::kAdd, sum.data());
  EXPECT_TRUE(same_bits(sum, expected));
}

TEST(GpuKernels, DoNotDependOnTheOrderOfThreads) {
  for (const MessageCase& one : {MessageCase{20'000, 8, 12}, MessageCase{70'000, 13, 17}}) {
    const packetize::PacketPlan plan = one.plan();
    const std::vector<float> tensor = mixed_tensor(one.length, one.row_log2, 9);
    CodedMessage message =
        encode_on_cpu(plan, tensor.data(), spillway_encode_float32, ThreadOrder::kBackward);
    const CodedMessage expected = oracle_encode(plan, kKey, tensor);
    expect_same_message(message, expected);
    message.received = expected.received;
    lose_some(message, 5);
    std::vector<float> values(one.length);
    decode_on_cpu(plan, message, codec::Estimate::kUnbiased, Store::kWrite, values.data(),
                  spillway_decode_float32, ThreadOrder::kBackward);
    EXPECT_TRUE(same_bits(values, oracle_decode(plan, kKey, message, codec::Estimate::kUnbiased)));
  }
}

struct HalfType {
  std::uint16_t (*from_float)(float);
  float (*to_float)(std::uint16_t);
  void (*encode)(EncodeArguments);
  void (*decode)(DecodeArguments);
};

TEST(GpuKernels, ReadAndWriteBothHalfFloats) {
  const HalfType types[] = {{collective::float_to_bfloat16, collective::bfloat16_to_float,
                             spillway_encode_bfloat16, spillway_decode_bfloat16},
                            {collective::float_to_float16, collective::float16_to_float,
                             spillway_encode_float16, spillway_decode_float16}};
  const packetize::PacketPlan plan = MessageCase{30'001, 12, 8}.plan();
  for (const HalfType& type : types) {
    std::vector<std::uint16_t> halves;
    std::vector<float> tensor;
    for (const float value : mixed_tensor(30'001, 12, 2)) {
      halves.push_back(type.from_float(value));
      tensor.push_back(type.to_float(halves.back()));
    }
    const CodedMessage expected = oracle_encode(plan, kKey, tensor);
    expect_same_message(encode_on_cpu(plan, halves.data(), type.encode), expected);
    std::vector<std::uint16_t> values(halves.size());
    decode_on_cpu(plan, expected, codec::Estimate::kUnbiased, Store::kWrite, values.data(),
                  type.decode);
    const std::vector<float> decoded =
        oracle_decode(plan, kKey, expected, codec::Estimate::kUnbiased);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], type.from_float(decoded[i])) << i;
    }
  }
}

TEST(GpuKernels, RoundToBfloat16AsTheCpuDoes) {
  for (std::uint32_t upper = 0; upper <= 0xFFFF; ++upper) {
    for (const std::uint32_t lower : {0x0000U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      const float value = std::bit_cast<float>(upper << 16 | lower);
      ASSERT_EQ(to_bfloat16(value), collective::float_to_bfloat16(value)) << upper << " " << lower;
    }
  }
}

TEST(GpuKernels, TakeTensorsThatAreNotAligned) {
  const packetize::PacketPlan plan = MessageCase{9'000, 12, 8}.plan();
  std::vector<float> memory = codec::gaussian_values(9'001, 6);
  const std::span<const float> tensor = std::span(memory).subspan(1);
  const CodedMessage expected = oracle_encode(plan, kKey, tensor);
  expect_same_message(encode_on_cpu(plan, tensor.data()), expected);
  std::vector<float> values(9'001);
  decode_on_cpu(plan, expected, codec::Estimate::kUnbiased, Store::kWrite, values.data() + 1);
  EXPECT_TRUE(same_bits(std::span(values).subspan(1),
                        oracle_decode(plan, kKey, expected, codec::Estimate::kUnbiased)));
}

TEST(GpuKernels, RotateAsTheOracleDoes) {
  for (unsigned row_log2 = codec::kMinRowLog2; row_log2 <= codec::kMaxRowLog2; ++row_log2) {
    const codec::RowLayout layout(std::size_t{5} << row_log2, row_log2);
    const std::vector<float> from = codec::gaussian_values(layout.tensor_length(), row_log2);
    std::vector<float> expected = from;
    for (std::uint32_t row = 0; row < 5; ++row) {
      codec::rotate_row(codec::scalar_kernels(), {kKey, row}, 0, 1, row_log2,
                        expected.data() + layout.row(row).offset);
    }
    std::vector<float> to(from.size());
    for (const Launch& launch : launches_of(layout, 0, 5)) {
      run_on_cpu(spillway_rotate, launch,
                 RotateArguments{from.data(), to.data(), kKey, launch.rows});
    }
    EXPECT_TRUE(same_bits(to, expected)) << row_log2;
  }
}

TEST(GpuKernels, HaveTheCodecsCompander) {
  for (unsigned i = 0; i < codec::kCompanderLines; ++i) {
    const Line line = compander_line(i);
    EXPECT_EQ(line.first_code, codec::kCompander[i].first_code);
    EXPECT_EQ(line.code_per_unit, codec::kCompander[i].code_per_unit);
    EXPECT_EQ(line.code_offset, codec::kCompander[i].code_offset);
    EXPECT_EQ(line.unit_per_code, codec::kCompander[i].unit_per_code);
    EXPECT_EQ(line.unit_offset, codec::kCompander[i].unit_offset);
  }
}

}  // namespace
}  // namespace spillway::gpu
