// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/sum_speed.h"

#include <algorithm>

#include "codec/block_code.h"
#include "codec/lanes.h"
#include "codec/level_decoder.h"
#include "codec/level_encoder.h"
#include "codec/row.h"
#include "collective/summed/sum_layout.h"
#include "tools/bench/codec/best_rate.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {
namespace {

constexpr std::size_t kSumRow = std::size_t{1} << collective::kSumRowLog2;

codec::RowLayout sum_rows(std::span<const float> values) {
  return {values.size(), collective::kSumRowLog2};
}

// Packs numbers of rows into words and back. Every row begins a chunk here, so that one row is
// processed at a time. On the wire rows follow each other, and bits_per_value() counts that.
class RowWords {
 public:
  RowWords(std::uint32_t largest, const codec::RowLayout& rows)
      : layout_(value_or_throw(codec::LaneLayout::make(kSumSpeedRanks, largest))),
        rows_(rows),
        words_(rows.row_count() * layout_.chunks_for(kSumRow) * codec::kChunkWords) {}

  void pack(std::size_t row, std::span<const std::uint32_t> numbers) {
    for_each_chunk(row, numbers.size(),
                   [&](std::uint64_t* words, std::size_t first, std::size_t count) {
                     codec::pack_chunk(layout_, numbers.subspan(first, count),
                                       codec::ChunkWords(words, codec::kChunkWords));
                   });
  }

  void unpack(std::size_t row, std::span<std::uint32_t> numbers) {
    for_each_chunk(row, numbers.size(),
                   [&](std::uint64_t* words, std::size_t first, std::size_t count) {
                     codec::unpack_chunk(layout_, codec::ConstChunkWords(words, codec::kChunkWords),
                                         numbers.subspan(first, count));
                   });
  }

  double bits_per_value() const {
    const codec::Row last = rows_.row(rows_.row_count() - 1);
    const std::size_t chunks = layout_.chunks_for(last.offset + last.length());
    return static_cast<double>(chunks * codec::kChunkWords * 64) /
           static_cast<double>(rows_.tensor_length());
  }

 private:
  template <typename Visit>
  void for_each_chunk(std::size_t row, std::size_t numbers, Visit&& visit) {
    std::uint64_t* words = words_.data() + row * layout_.chunks_for(kSumRow) * codec::kChunkWords;
    for (std::size_t first = 0; first < numbers; first += layout_.values_per_chunk()) {
      visit(words, first, std::min(layout_.values_per_chunk(), numbers - first));
      words += codec::kChunkWords;
    }
  }

  codec::LaneLayout layout_;
  codec::RowLayout rows_;
  std::vector<std::uint64_t> words_;
};

codec::RotationId rotation_of(std::size_t row) {
  return {1, static_cast<std::uint32_t>(row)};
}

}  // namespace

CodecSpeed levels_speed(const SpeedRun& run, const std::string& name,
                        const codec::LevelCode& code) {
  const codec::RowLayout rows = sum_rows(run.values);
  RowWords words(code.range, rows);
  const codec::LevelRounder rounder(code, 0, run.kernels);
  std::vector<float> scales(rows.row_count());
  std::vector<float> rotated(kSumRow);
  std::vector<std::uint32_t> numbers(kSumRow);
  const double encode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    for (std::size_t i = 0; i < rows.row_count(); ++i) {
      const codec::Row row = rows.row(i);
      const std::span<float> coordinates = std::span(rotated).first(row.length());
      const std::span<std::uint32_t> levels = std::span(numbers).first(row.length());
      const codec::RotatedRow head =
          codec::rotate_for_levels(run.kernels, run.values.subspan(row.offset, row.values),
                                   row.log2_length, rotation_of(i), coordinates);
      rounder.round(coordinates, head, head.measure, rotation_of(i), levels);
      words.pack(i, levels);
      scales[i] = head.measure;
    }
    keep(&words);
  });
  const double decode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    for (std::size_t i = 0; i < rows.row_count(); ++i) {
      const codec::Row row = rows.row(i);
      const std::span<float> means = std::span(rotated).first(row.length());
      words.unpack(i, std::span(numbers).first(row.length()));
      codec::decode_level_sums(code, std::span(numbers).first(row.length()), 1, means);
      codec::finish_level_row(run.kernels, code, scales[i], rotation_of(i), row.length(), 1.0,
                              means);
      std::copy_n(means.begin(), row.values, run.work.subspan(row.offset).begin());
    }
    keep(run.work.data());
  });
  return {name, std::string(run.kernels.name), encode, decode, words.bits_per_value()};
}

CodecSpeed blocks_speed(const SpeedRun& run, const std::string& name) {
  const codec::RowLayout rows = sum_rows(run.values);
  const codec::BlockCode code = codec::BlockCode::for_contributors(kSumSpeedRanks);
  RowWords words(code.largest(), rows);
  std::vector<float> scales(rows.row_count());
  std::vector<std::uint32_t> numbers(kSumRow);
  const double encode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    for (std::size_t i = 0; i < rows.row_count(); ++i) {
      const codec::Row row = rows.row(i);
      const std::span<const float> block = run.values.subspan(row.offset, row.values);
      scales[i] = codec::measure_block(block);
      codec::encode_block(code, block, scales[i], std::span(numbers).first(row.values));
      words.pack(i, std::span(numbers).first(row.values));
    }
    keep(&words);
  });
  const double decode = best_rate(run.values.size_bytes(), run.repetitions, kNoPreparation, [&] {
    for (std::size_t i = 0; i < rows.row_count(); ++i) {
      const codec::Row row = rows.row(i);
      const std::span<std::uint32_t> sums = std::span(numbers).first(row.values);
      words.unpack(i, sums);
      codec::decode_block_sums(code, sums, scales[i], 1, 1.0,
                               run.work.subspan(row.offset, row.values));
    }
    keep(run.work.data());
  });
  return {name, std::string(run.kernels.name), encode, decode, words.bits_per_value()};
}

std::vector<CodecSpeed> sum_speeds(const SpeedRun& run) {
  return {levels_speed(run, "levels-4-8-ranks", codec::choose_level_code(4, kSumSpeedRanks)),
          levels_speed(run, "thc-4-8-ranks", codec::find_level_code(4, 30, 1.0 / 32)),
          blocks_speed(run, "block-8-ranks")};
}

}  // namespace spillway::bench
