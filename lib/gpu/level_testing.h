// SPDX-License-Identifier: Apache-2.0
//
// An all-reduce by sums of levels from one rank's view, computed by the scalar oracle. It covers
// rows of every kind with their residuals, sums of several ranks' words with missing chunks, and
// the residuals afterwards. check() compares a device with it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "codec/lanes.h"
#include "codec/level_code.h"
#include "collective/device_tensor.h"
#include "gpu/device_coder.h"
#include "gpu/message_testing.h"

namespace spillway::gpu {

// The rows of one rank and the words they become.
struct OracleLevels {
  std::vector<codec::RotatedRow> rows;
  std::vector<std::uint64_t> words;
  std::size_t clipped = 0;
};

inline std::vector<codec::RotatedRow> oracle_measure(const collective::DeviceLevels& levels,
                                                     std::span<const float> values,
                                                     std::vector<float>& coordinates) {
  std::vector<codec::RotatedRow> rows;
  coordinates.resize(coordinates_of(levels.rows));
  for (std::size_t i = 0; i < levels.rows.row_count(); ++i) {
    const codec::Row row = levels.rows.row(i);
    rows.push_back(
        codec::rotate_for_levels(codec::scalar_kernels(), values.subspan(row.offset, row.values),
                                 row.log2_length, {levels.key, static_cast<std::uint32_t>(i)},
                                 std::span(coordinates).subspan(row.offset, row.length())));
  }
  return rows;
}

inline OracleLevels oracle_round(const collective::DeviceLevels& levels,
                                 std::span<const float> values, std::span<const float> scales) {
  OracleLevels made;
  std::vector<float> coordinates;
  made.rows = oracle_measure(levels, values, coordinates);
  std::vector<std::uint32_t> numbers(coordinates.size());
  const codec::LevelRounder rounder(*levels.code, levels.rank, codec::scalar_kernels());
  for (std::size_t i = 0; i < made.rows.size(); ++i) {
    const codec::Row row = levels.rows.row(i);
    made.clipped +=
        rounder.round(std::span(coordinates).subspan(row.offset, row.length()), made.rows[i],
                      scales[i], {levels.key, static_cast<std::uint32_t>(i)},
                      std::span(numbers).subspan(row.offset, row.length()));
  }
  made.words.resize(words_of(levels));
  const std::size_t per_chunk = levels.lanes.values_per_chunk();
  for (std::size_t first = 0, word = 0; first < numbers.size();
       first += per_chunk, word += codec::kChunkWords) {
    codec::pack_chunk(
        levels.lanes,
        std::span(numbers).subspan(first, std::min(per_chunk, numbers.size() - first)),
        codec::ChunkWords(&made.words[word], codec::kChunkWords));
  }
  return made;
}

inline std::vector<float> oracle_decode_sums(const collective::DeviceLevels& levels,
                                             const collective::DeviceLevelSums& sums) {
  std::vector<std::uint32_t> numbers(coordinates_of(levels.rows));
  std::vector<float> means(numbers.size());
  const std::size_t per_chunk = levels.lanes.values_per_chunk();
  for (std::size_t chunk = 0; chunk < sums.contributors.size(); ++chunk) {
    const std::size_t first = chunk * per_chunk;
    const std::size_t count = std::min(per_chunk, numbers.size() - first);
    const std::span<std::uint32_t> part = std::span(numbers).subspan(first, count);
    codec::unpack_chunk(
        levels.lanes,
        codec::ConstChunkWords(&sums.words[chunk * codec::kChunkWords], codec::kChunkWords), part);
    codec::decode_level_sums(*levels.code, part, sums.contributors[chunk],
                             std::span(means).subspan(first, count));
  }
  std::vector<float> values(levels.rows.tensor_length());
  for (std::size_t i = 0; i < levels.rows.row_count(); ++i) {
    const codec::Row row = levels.rows.row(i);
    std::size_t arrived = 0;
    for (std::size_t k = row.offset; k < row.offset + row.length(); ++k) {
      arrived += sums.contributors[k / per_chunk] > 0 ? 1 : 0;
    }
    const std::span<float> mine = std::span(means).subspan(row.offset, row.length());
    codec::finish_level_row(codec::scalar_kernels(), *levels.code, sums.scales[i],
                            {levels.key, static_cast<std::uint32_t>(i)},
                            sums.makes_up ? arrived : row.length(), sums.weight, mine);
    std::copy_n(mine.begin(), row.values, values.begin() + static_cast<long>(row.offset));
  }
  return values;
}

// True if all bits are equal; any NaN equals any other.
inline bool same_values(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) ||
           (std::isnan(x) && std::isnan(y));
  });
}

enum class Residuals { kNone, kSome };

struct LevelCase {
  static constexpr unsigned kRanks = 3;

  LevelCase(std::size_t length, unsigned row_log2, unsigned bits, Residuals residuals,
            std::uint64_t seed)
      : code(codec::choose_level_code(bits, kRanks)),
        own(mixed_tensor(length, row_log2, seed)),
        levels{.extent = {0, length},
               .rows = {length, row_log2},
               .key = seed * 0x9E3779B97F4A7C15ULL,
               .code = &code,
               .lanes = codec::LaneLayout::make(kRanks, code.range).value(),
               .rank = 1} {
    if (residuals == Residuals::kSome) {
      before = codec::gaussian_values(length, seed + 1);
    }
    whole = own;
    for (std::size_t i = 0; i < before.size(); ++i) {
      whole[i] += before[i];
    }
    measure_all(seed);
    add_up(seed);
    settle();
  }
  LevelCase(const LevelCase&) = delete;

  std::string name() const {
    return std::to_string(own.size()) + " values, rows of 2^" +
           std::to_string(levels.rows.row_log2()) + (before.empty() ? "" : ", residual");
  }

  // `residual` is the device's residual and holds `before`, or null. The two functions fetch device
  // memory.
  void check(collective::DeviceTensor& device, float* residual,
             const std::function<std::vector<float>()>& fetch_output,
             const std::function<std::vector<float>()>& fetch_owed) const {
    std::vector<codec::RotatedRow> rows(levels.rows.row_count());
    ASSERT_TRUE(device.measure(levels, residual, rows).ok());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE(same_values({&rows[i].measure, 1}, {&mine.rows[i].measure, 1})) << "row " << i;
      EXPECT_EQ(rows[i].exponent, mine.rows[i].exponent) << "row " << i;
    }
    const std::shared_ptr<std::uint64_t[]> words = device.make_words(mine.words.size()).value();
    std::size_t clipped = 0;
    ASSERT_TRUE(
        device.round(levels, residual, rows, scales, {words.get(), mine.words.size()}, clipped)
            .ok());
    EXPECT_EQ(clipped, mine.clipped);
    EXPECT_TRUE(std::equal(mine.words.begin(), mine.words.end(), words.get()));
    if (residual != nullptr) {
      ASSERT_TRUE(device
                      .settle_levels(levels,
                                     {.words = {words.get(), mine.words.size()},
                                      .contributors = own_counts,
                                      .scales = scales,
                                      .makes_up = false},
                                     not_finite, residual)
                      .ok());
      EXPECT_TRUE(same_values(fetch_owed(), settled));
    }
    std::copy(sums.begin(), sums.end(), words.get());
    ASSERT_TRUE(device.decode_sums(levels, sums_in({words.get(), sums.size()})).ok());
    EXPECT_TRUE(same_values(fetch_output(), decoded));
  }

  collective::DeviceLevelSums sums_in(std::span<const std::uint64_t> words) const {
    return {.words = words,
            .contributors = counts,
            .scales = shared,
            .weight = static_cast<double>(kRanks)};
  }

  codec::LevelCode code;
  std::vector<float> own;
  collective::DeviceLevels levels;
  std::vector<float> before;  // residual
  std::vector<float> whole;   // own values plus residual
  std::vector<float> scales;
  std::vector<float> shared;  // scales, with NaN for rows that are not finite
  std::vector<bool> not_finite;
  OracleLevels mine;
  std::vector<std::uint64_t> sums;
  std::vector<unsigned> counts;
  std::vector<unsigned> own_counts;
  std::vector<float> decoded;
  std::vector<float> settled;

 private:
  std::vector<float> values_of(unsigned rank, std::uint64_t seed) const {
    return rank == levels.rank ? whole : codec::gaussian_values(own.size(), seed + 100 + rank);
  }

  // Every fourth scale is too small by half, as a wrong prediction would be. Some non-finite rows
  // get a finite one.
  void measure_all(std::uint64_t seed) {
    scales.assign(levels.rows.row_count(), 0.0F);
    not_finite.assign(scales.size(), false);
    shared.assign(scales.size(), 0.0F);
    for (unsigned rank = 0; rank < kRanks; ++rank) {
      std::vector<float> coordinates;
      const auto rows = oracle_measure(levels, values_of(rank, seed), coordinates);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const bool is_predicted = std::isnan(rows[i].measure) && i % 2 == 0;
        shared[i] = codec::larger_scale(shared[i], rows[i].measure);
        scales[i] = is_predicted ? codec::larger_scale(scales[i], 1.0F)
                                 : codec::larger_scale(
                                       scales[i], rows[i].measure * (i % 4 == 3 ? 0.5F : 1.0F));
      }
    }
    for (std::size_t i = 0; i < scales.size(); ++i) {
      not_finite[i] = std::isnan(shared[i]);
      shared[i] = not_finite[i] ? shared[i] : scales[i];
    }
  }

  // Each chunk's sum misses some ranks; every seventh chunk has no contributor.
  void add_up(std::uint64_t seed) {
    counts.assign(words_of(levels) / codec::kChunkWords, 0);
    own_counts = counts;
    sums.assign(words_of(levels), 0);
    for (unsigned rank = 0; rank < kRanks; ++rank) {
      collective::DeviceLevels its = levels;
      its.rank = rank;
      OracleLevels part = oracle_round(its, values_of(rank, seed), scales);
      for (std::size_t chunk = 0; chunk < counts.size(); ++chunk) {
        if (chunk % 7 == 6 || (chunk + rank) % 5 == 4) {
          continue;
        }
        ++counts[chunk];
        own_counts[chunk] += rank == levels.rank ? 1 : 0;
        for (std::size_t i = chunk * codec::kChunkWords; i < (chunk + 1) * codec::kChunkWords;
             ++i) {
          sums[i] += part.words[i];
        }
      }
      if (rank == levels.rank) {
        mine = std::move(part);
      }
    }
    decoded = oracle_decode_sums(levels, sums_in(sums));
  }

  void settle() {
    const std::vector<float> sent = oracle_decode_sums(
        levels,
        {.words = mine.words, .contributors = own_counts, .scales = scales, .makes_up = false});
    settled = whole;
    for (std::size_t i = 0; i < settled.size(); ++i) {
      const std::size_t row = i >> levels.rows.row_log2();
      settled[i] = not_finite[row] ? 0.0F : settled[i] - sent[i];
    }
  }
};

// Every row length, last rows of other lengths, and every level width that ranks may ask for.
template <typename Visit>
void for_each_level_case(const Visit& visit) {
  std::uint64_t seed = 1;
  for (const Residuals residuals : {Residuals::kNone, Residuals::kSome}) {
    for (const auto& [length, row_log2, bits] : {std::tuple{1, 13, 4},
                                                 {300, 8, 2},
                                                 {5'000, 8, 8},
                                                 {9'000, 10, 3},
                                                 {131'072, 13, 4},
                                                 {150'003, 13, 8},
                                                 {60'000, 14, 4},
                                                 {200'001, 12, 2}}) {
      visit(LevelCase(static_cast<std::size_t>(length), static_cast<unsigned>(row_log2),
                      static_cast<unsigned>(bits), residuals, seed++));
    }
  }
}

}  // namespace spillway::gpu
