// SPDX-License-Identifier: Apache-2.0
//
// The levels kernels on a CPU against the scalar oracle; tests/gpu/cuda_test.cc does the same on a
// GPU.
#include <gtest/gtest.h>

#include <vector>

#include "collective/half_float.h"
#include "gpu/emulated_tensor_testing.h"
#include "gpu/level_testing.h"

namespace spillway::gpu {
namespace {

TEST(GpuLevels, AreTheOraclesBitsThereAndBack) {
  for_each_level_case([](const LevelCase& one) {
    SCOPED_TRACE(one.name());
    std::vector<float> output(one.own.size());
    std::vector<float> owed = one.before;
    EmulatedTensor tensor(one.own.data(), output.data());
    one.check(
        tensor, owed.empty() ? nullptr : owed.data(), [&] { return output; }, [&] { return owed; });
  });
}

// A float16 tensor there and back, with threads in reverse order.
template <typename Kernels>
void check_halves(const Kernels& kernels) {
  LevelCase one(20'001, 12, 4, Owed::kNothing, 77);
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

}  // namespace
}  // namespace spillway::gpu
