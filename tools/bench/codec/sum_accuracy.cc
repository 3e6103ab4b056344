// SPDX-License-Identifier: Apache-2.0
//
// Error of addable codes: measure_sums() of accuracy.h, on one row of each sample.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "codec/block_code.h"
#include "codec/lanes.h"
#include "codec/level_decoder.h"
#include "codec/level_encoder.h"
#include "codec/row.h"
#include "codec/sample_data.h"
#include "tools/bench/codec/accuracy.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {
namespace {

constexpr std::array<unsigned, 4> kRankCounts = {1, 4, 8, 32};
constexpr std::array<unsigned, 5> kLevelBits = {2, 3, 4, 5, 8};

struct NamedCode {
  std::string name;
  codec::LevelCode code;
};

std::vector<NamedCode> level_codes(unsigned ranks) {
  std::vector<NamedCode> codes;
  for (const unsigned bits : kLevelBits) {
    codes.push_back({fmt::format("levels-{}", bits), codec::choose_level_code(bits, ranks)});
  }
  codes.push_back({"thc-4 (30, 1/32)", codec::find_level_code(4, 30, 1.0 / 32)});
  codes.push_back({"thc-3 (16, 1/32)", codec::find_level_code(3, 16, 1.0 / 32)});
  codes.push_back({"thc-2 (34, 1/512)", codec::find_level_code(2, 34, 1.0 / 512)});
  return codes;
}

double bits_of(unsigned ranks, std::uint32_t largest) {
  return 64.0 / value_or_throw(codec::LaneLayout::make(ranks, largest)).lanes;
}

// The mean of one row's levels over `ranks` ranks.
std::vector<float> through_levels(const codec::LevelCode& code, unsigned ranks,
                                  codec::RotationId rotation, std::span<const float> values) {
  const codec::Kernels& kernels = codec::best_kernels();
  const codec::Row layout = codec::RowLayout(values.size(), codec::kMaxRowLog2).row(0);
  std::vector<float> row(layout.length());
  const codec::RotatedRow head =
      codec::rotate_for_levels(kernels, values, layout.log2_length, rotation, row);
  std::vector<std::uint32_t> levels(row.size());
  std::vector<std::uint32_t> sums(row.size());
  for (unsigned rank = 0; rank < ranks; ++rank) {
    codec::LevelRounder(code, rank).round(row, head, head.measure, rotation, levels);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += levels[i];
    }
  }
  codec::decode_level_sums(code, sums, ranks, row);
  codec::finish_level_row(kernels, code, head.measure, rotation, row.size(), 1.0, row);
  row.resize(values.size());
  return row;
}

double levels_error(const codec::LevelCode& code, unsigned ranks, std::span<const float> values,
                    int messages) {
  double total = 0.0;
  for (int message = 0; message < messages; ++message) {
    const codec::RotationId rotation{static_cast<std::uint64_t>(message), 0};
    total += codec::nmse(through_levels(code, ranks, rotation, values), values);
  }
  return total / messages;
}

// Rounds to nearest: ranks with the same values make the same error.
double blocks_error(const codec::BlockCode& code, std::span<const float> values) {
  std::vector<std::uint32_t> numbers(values.size());
  std::vector<float> back(values.size());
  const float scale = codec::measure_block(values);
  codec::encode_block(code, values, scale, numbers);
  codec::decode_block_sums(code, numbers, scale, 1, 1.0, back);
  return codec::nmse(back, values);
}

}  // namespace

std::vector<SumError> measure_sums(const std::vector<Sample>& samples,
                                   const AccuracyOptions& options, Progress& progress) {
  std::vector<SumError> results;
  for (const Sample& sample : samples) {
    progress.step(fmt::format("error of sums, {}", sample.name));
    const std::span<const float> values =
        std::span(sample.values).first(std::min(sample.values.size(), codec::kMaxRowLength));
    for (const unsigned ranks : kRankCounts) {
      for (const NamedCode& code : level_codes(ranks)) {
        results.push_back({sample.name, code.name, ranks, bits_of(ranks, code.code.range),
                           levels_error(code.code, ranks, values, options.messages)});
      }
      const codec::BlockCode blocks = codec::BlockCode::for_contributors(ranks);
      results.push_back({sample.name, "block", ranks, bits_of(ranks, blocks.largest()),
                         blocks_error(blocks, values)});
    }
  }
  return results;
}

}  // namespace spillway::bench
