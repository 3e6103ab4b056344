// SPDX-License-Identifier: Apache-2.0
//
// The kernels' sources on a CPU against the scalar oracle, so that hosts without a GPU check the
// bits too. tests/gpu/cuda_test.cc does the same on a GPU.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "codec/rotation.h"
#include "collective/reduction.h"
#include "gpu/block_testing.h"
#include "gpu/emulated_tensor_testing.h"
#include "gpu/kernel_compiler.h"
#include "gpu/level_testing.h"
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

// ------------------------------------------------------------------ levels
//
// The levels kernels on a CPU against the scalar oracle; tests/gpu/cuda_test.cc does the same on a
// GPU.

TEST(GpuLevels, AreTheOraclesBitsThereAndBack) {
  for_each_level_case([](const LevelCase& one) {
    SCOPED_TRACE(one.name());
    std::vector<float> output(one.own.size());
    std::vector<float> residual = one.before;
    EmulatedTensor tensor(one.own.data(), output.data());
    one.check(
        tensor, residual.empty() ? nullptr : residual.data(), [&] { return output; },
        [&] { return residual; });
  });
}

// A float16 tensor there and back, with threads in reverse order.
template <typename Kernels>
void check_halves(const Kernels& kernels) {
  LevelCase one(20'001, 12, 4, Residuals::kNone, 77);
  std::vector<std::uint16_t> halves;
  std::vector<float> values;
  for (const float value : one.own) {
    halves.push_back(kernels.from_float(value));
    values.push_back(kernels.to_float(halves.back()));
  }
  const OracleLevels expected = oracle_round(one.levels, values, one.scales);
  const LevelTensor tensor{halves.data(), halves.size(), one.levels.key, 12};
  std::vector<RowMeasure> measures(expected.rows.size());
  std::vector<unsigned short> numbers(coordinates_of(one.levels.rows));
  const std::vector<LevelRow> rounded = rounded_rows(one.levels, expected.rows, one.scales);
  unsigned clipped = 0;
  for (const Launch& launch : launches_of(one.levels.rows, 0, measures.size())) {
    run_on_cpu(kernels.measure, launch, MeasureArguments{tensor, measures.data(), launch.rows},
               ThreadOrder::kBackward);
    run_on_cpu(kernels.round, launch,
               RoundArguments{tensor, rounded.data(), numbers.data(), &clipped, launch.rows,
                              one.levels.rank, static_cast<float>(one.code.range)},
               ThreadOrder::kBackward);
  }
  for (std::size_t i = 0; i < measures.size(); ++i) {
    EXPECT_TRUE(same_values({&measures[i].measure, 1}, {&expected.rows[i].measure, 1})) << i;
    EXPECT_EQ(measures[i].exponent, expected.rows[i].exponent) << i;
  }
  EXPECT_EQ(clipped, expected.clipped);
  std::vector<unsigned long long> words(expected.words.size());
  run_on_cpu(spillway_pack_levels, Launch{{}, static_cast<unsigned>(words.size() / 24 + 1), 24, 0},
             PackArguments{numbers.data(), words.data(), numbers.size(), words.size(),
                           lanes_of(one.levels.lanes)});
  EXPECT_TRUE(std::equal(words.begin(), words.end(), expected.words.begin()));
  const std::vector<LevelRow> decoded = decoded_rows(one.levels, one.sums_in(one.sums), {});
  const std::vector<ChunkShare> chunks = chunk_shares(one.levels, one.sums_in(one.sums));
  const std::vector<unsigned long long> sums(one.sums.begin(), one.sums.end());
  for (const Launch& launch : launches_of(one.levels.rows, 0, measures.size())) {
    run_on_cpu(kernels.decode, launch,
               SumArguments{tensor, sums.data(), chunks.data(), decoded.data(), launch.rows,
                            lanes_of(one.levels.lanes), Store::kWrite},
               ThreadOrder::kBackward);
  }
  for (std::size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(halves[i], kernels.from_float(one.decoded[i])) << i;
  }
}

struct LevelKernels {
  std::uint16_t (*from_float)(float);
  float (*to_float)(std::uint16_t);
  void (*measure)(MeasureArguments);
  void (*round)(RoundArguments);
  void (*decode)(SumArguments);
};

TEST(GpuLevels, ReadAndWriteBothHalfFloats) {
  check_halves(LevelKernels{collective::float_to_bfloat16, collective::bfloat16_to_float,
                            spillway_measure_bfloat16, spillway_round_bfloat16,
                            spillway_decode_sums_bfloat16});
  check_halves(LevelKernels{collective::float_to_float16, collective::float16_to_float,
                            spillway_measure_float16, spillway_round_float16,
                            spillway_decode_sums_float16});
}

// ------------------------------------------------------------------ the compiler

class KernelCompiler : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "spillway-kernels-" + std::to_string(::getpid());
    environment_.set("SPILLWAY_CACHE_DIR", folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  base::Environment environment_;
};

TEST_F(KernelCompiler, SaysWhatIsMissing) {
  environment_.set("SPILLWAY_NVRTC", "/nowhere/libnvrtc.so");
  const auto code = compile_kernels(9, 0, environment_);
  ASSERT_FALSE(code.ok());
  EXPECT_EQ(code.status().code(), base::StatusCode::kUnavailable);
  EXPECT_NE(code.status().message().find("/nowhere/libnvrtc.so"), std::string::npos);
  EXPECT_NE(code.status().message().find("the CPU codes"), std::string::npos);
}

TEST_F(KernelCompiler, CompilesOnceAndReadsAfterwards) {
  const auto first = compile_kernels(9, 0, environment_);
  if (!first.ok()) {
    GTEST_SKIP() << first.status().message();
  }
  EXPECT_EQ(first->origin, CodeOrigin::kCompiler);
  const auto second = compile_kernels(9, 0, environment_);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->origin, CodeOrigin::kCache);
  EXPECT_EQ(second->image, first->image);
}

TEST_F(KernelCompiler, TrustsOnlyMachineCodeThatNobodyElseMayWrite) {
  const KernelCache cache(folder_);
  const std::string path = folder_ + "/kept";
  EXPECT_FALSE(cache.read("kept"));
  const std::string code =
      "\x7F"
      "ELF and more";
  cache.keep("kept", {code.begin(), code.end()});
  EXPECT_TRUE(cache.read("kept"));
  ::chmod(path.c_str(), 0620);
  EXPECT_FALSE(cache.read("kept"));
  ::chmod(path.c_str(), 0600);
  std::filesystem::rename(path, folder_ + "/elsewhere");
  ASSERT_EQ(::symlink("elsewhere", path.c_str()), 0);
  EXPECT_FALSE(cache.read("kept")) << "a link is followed";
  const std::string text = "text";
  cache.keep("kept", {text.begin(), text.end()});
  EXPECT_FALSE(cache.read("kept"));
}

TEST_F(KernelCompiler, UsesNoFolderThatOthersMayWriteTo) {
  std::filesystem::create_directory(folder_);
  ::chmod(folder_.c_str(), 0777);
  const KernelCache cache(folder_);
  const std::string code =
      "\x7F"
      "ELF and more";
  std::ofstream(folder_ + "/planted") << code;
  ::chmod((folder_ + "/planted").c_str(), 0600);
  EXPECT_FALSE(cache.read("planted"));
  cache.keep("kept", {code.begin(), code.end()});
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/kept"));
}

TEST_F(KernelCompiler, RefusesAGpuThatTheCompilerDoesNotKnow) {
  const auto code = compile_kernels(99, 9, environment_);
  ASSERT_FALSE(code.ok());
  EXPECT_EQ(code.status().code(), base::StatusCode::kUnavailable);
}

TEST_F(KernelCompiler, CachesWhereTheUserSays) {
  EXPECT_EQ(cache_folder({{"SPILLWAY_CACHE_DIR", "/a"}, {"XDG_CACHE_HOME", "/b"}}), "/a");
  EXPECT_EQ(cache_folder({{"XDG_CACHE_HOME", "/b"}, {"HOME", "/c"}}), "/b/spillway");
  EXPECT_EQ(cache_folder({{"HOME", "/c"}}), "/c/.cache/spillway");
  EXPECT_EQ(cache_folder({}), "");
}

}  // namespace

}  // namespace spillway::gpu
