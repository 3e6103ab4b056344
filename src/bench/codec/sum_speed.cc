// SPDX-License-Identifier: Apache-2.0
#include "bench/codec/sum_speed.h"

#include <algorithm>
#include <string>

#include "bench/codec/best_rate.h"
#include "bench/command_error.h"
#include "codec/block_code.h"
#include "codec/lanes.h"
#include "codec/level_decoder.h"
#include "codec/level_encoder.h"

namespace spillway::bench {
namespace {

constexpr unsigned kRanks = 8;
constexpr unsigned kSumRowLog2 = 15;
constexpr std::size_t kSumRow = std::size_t{1} << kSumRowLog2;

// Numbers of rows to words and back; every row begins a chunk.
class RowWords {
 public:
  RowWords(const codec::LaneLayout& layout, std::size_t rows)
      : layout_(layout), words_(rows * layout.chunks_for(kSumRow) * codec::kChunkWords) {}

  void pack(std::size_t row, std::span<const std::uint32_t> numbers) {
    for_each_chunk(row, [&](std::uint64_t* words, std::size_t first, std::size_t count) {
      codec::pack_chunk(layout_, numbers.subspan(first, count),
                        codec::ChunkWords(words, codec::kChunkWords));
    });
  }

  void unpack(std::size_t row, std::span<std::uint32_t> numbers) {
    for_each_chunk(row, [&](std::uint64_t* words, std::size_t first, std::size_t count) {
      codec::unpack_chunk(layout_, codec::ConstChunkWords(words, codec::kChunkWords),
                          numbers.subspan(first, count));
    });
  }

  double bits_per_value(std::size_t rows) const {
    return static_cast<double>(words_.size()) * 64.0 / static_cast<double>(rows * kSumRow);
  }

 private:
  template <typename Visit>
  void for_each_chunk(std::size_t row, Visit&& visit) {
    std::uint64_t* words = words_.data() + row * layout_.chunks_for(kSumRow) * codec::kChunkWords;
    for (std::size_t first = 0; first < kSumRow; first += layout_.values_per_chunk()) {
      visit(words, first, std::min(layout_.values_per_chunk(), kSumRow - first));
      words += codec::kChunkWords;
    }
  }

  codec::LaneLayout layout_;
  std::vector<std::uint64_t> words_;
};

CodecSpeed levels_speed(const codec::Kernels& kernels, const std::string& name,
                        const codec::LevelCode& code, std::span<const float> values,
                        std::span<float> work, int repetitions) {
  const std::size_t rows = values.size() / kSumRow;
  RowWords words(value_or_throw(codec::LaneLayout::make(kRanks, code.range)), rows);
  const codec::LevelRounder rounder(code, 0, kernels);
  std::vector<float> rotated(kSumRow);
  std::vector<std::uint32_t> numbers(kSumRow);
  const auto id = [](std::size_t row) {
    return codec::RotationId{1, static_cast<std::uint32_t>(row)};
  };
  const double encode = best_rate(values.size_bytes(), repetitions, kNoPreparation, [&] {
    for (std::size_t row = 0; row < rows; ++row) {
      const codec::RotatedRow head = codec::rotate_for_levels(
          kernels, values.subspan(row * kSumRow, kSumRow), kSumRowLog2, id(row), rotated);
      rounder.round(rotated, head, head.measure, id(row), numbers);
      words.pack(row, numbers);
    }
    keep(&words);
  });
  const double decode = best_rate(values.size_bytes(), repetitions, kNoPreparation, [&] {
    for (std::size_t row = 0; row < rows; ++row) {
      const std::span<float> out = work.subspan(row * kSumRow, kSumRow);
      words.unpack(row, numbers);
      codec::decode_level_sums(code, numbers, 1, out);
      codec::finish_level_row(kernels, code, 1.0F, id(row), kSumRow, 1.0, out);
    }
    keep(work.data());
  });
  return {name, std::string(kernels.name), encode, decode, words.bits_per_value(rows)};
}

CodecSpeed blocks_speed(const codec::Kernels& kernels, std::span<const float> values,
                        std::span<float> work, int repetitions) {
  const std::size_t rows = values.size() / kSumRow;
  const codec::BlockCode code = codec::BlockCode::for_contributors(kRanks);
  RowWords words(value_or_throw(codec::LaneLayout::make(kRanks, code.largest())), rows);
  std::vector<std::uint32_t> numbers(kSumRow);
  const double encode = best_rate(values.size_bytes(), repetitions, kNoPreparation, [&] {
    for (std::size_t row = 0; row < rows; ++row) {
      const std::span<const float> block = values.subspan(row * kSumRow, kSumRow);
      codec::encode_block(code, block, codec::measure_block(block), numbers);
      words.pack(row, numbers);
    }
    keep(&words);
  });
  const double decode = best_rate(values.size_bytes(), repetitions, kNoPreparation, [&] {
    for (std::size_t row = 0; row < rows; ++row) {
      words.unpack(row, numbers);
      codec::decode_block_sums(code, numbers, 1.0F, 1, 1.0, work.subspan(row * kSumRow, kSumRow));
    }
    keep(work.data());
  });
  return {"block-8-ranks", std::string(kernels.name), encode, decode, words.bits_per_value(rows)};
}

}  // namespace

std::vector<CodecSpeed> sum_speeds(const codec::Kernels& kernels, std::span<const float> values,
                                   std::span<float> work, int repetitions) {
  return {levels_speed(kernels, "levels-4-8-ranks", codec::choose_level_code(4, kRanks), values,
                       work, repetitions),
          levels_speed(kernels, "thc-4-8-ranks", codec::find_level_code(4, 30, 1.0 / 32), values,
                       work, repetitions),
          blocks_speed(kernels, values, work, repetitions)};
}

}  // namespace spillway::bench
