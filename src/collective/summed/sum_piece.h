// SPDX-License-Identifier: Apache-2.0
//
// What has to be calculated for one piece of an all-reduce by sums, at one rank: measure its rows,
// make numbers of them once the ranks share a scale, and make values of the sums of numbers.
//
//   measure()   values (and what they are owed) ─► rows, rotated, and what each measures
//   encode()    rows, the shared scale ─► words
//   decode()    sums, who is in each chunk ─► values, at the caller's output; and what this rank
//               goes on being owed
//
// A tensor of levels may be a device's (Operation::device): then its values stay there, words come
// and go, and calculations fail where the device does.
//
// Calculations may run on any thread, one at a time per piece; of the caller's memory they touch
// the piece's own extent.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "codec/block_code.h"
#include "codec/level_code.h"
#include "codec/level_encoder.h"
#include "collective/device_tensor.h"
#include "collective/summed/sum_layout.h"

namespace spillway::collective {

// What the pieces of a run have in common.
struct SumCoder {
  SumCoder(const Operation& operation, const SumLayout& layout, std::span<float> residual);

  const Operation& operation;
  const SumLayout& layout;
  std::variant<codec::LevelCode, codec::BlockCode> code;
  // Of the tensor: what did not get into earlier sums; or empty.
  std::span<float> residual;

  bool has_residual() const { return !residual.empty(); }
  // Of the residual, which may be a device's.
  float* owed(const Extent& extent) const {
    return residual.empty() ? nullptr : residual.data() + extent.first;
  }
  // What the mean of the contributors is multiplied by.
  double weight() const;
};

class SumPiece {
 public:
  // `key`: of the rotations and draws, the same at all ranks.
  SumPiece(const SumCoder& coder, const SumPlace& place, std::uint64_t key);

  const SumPlace& place() const { return place_; }
  std::size_t row_count() const { return rows_.row_count(); }

  base::Status measure();
  // By row; the larger of what ranks measured is the scale.
  std::span<float> measures() { return measures_; }

  // With the scale by row.
  base::Status encode(std::span<const float> scales);
  // A piece that this rank owns and has no part of.
  void begin_empty();
  std::span<std::uint64_t> words() { return words_; }
  std::span<wire::RankSet> ranks() { return ranks_; }
  // Coordinates that were too large for a predicted scale.
  std::size_t clipped() const { return clipped_; }

  // `shared` is the largest measure by row, which tells rows that are not finite.
  base::Status decode(std::span<const float> shared);
  // Ranks in the chunk that has the fewest, and elements that have none.
  unsigned fewest_contributors() const;

 private:
  struct Segment {
    std::size_t first;  // coordinate of the piece
    std::size_t count;
    std::size_t chunk;
  };
  // The parts of a row by chunk.
  template <typename Visit>
  void for_each_segment(std::size_t first, std::size_t count, Visit&& visit) const;
  codec::RotationId rotation(std::size_t row) const {
    return {key_, static_cast<std::uint32_t>(row)};
  }
  // The codes of rows, into words.
  void write_words(std::span<const std::uint32_t> numbers);
  base::Status encode_on_device();
  base::Status decode_on_device(std::span<const float> shared);
  DeviceLevels on_device() const;
  std::vector<float> own_values() const;
  std::vector<std::uint32_t> numbers_of(std::span<const std::uint64_t> words) const;
  // One row of sums, each chunk's by `count` of its ranks, into values.
  template <typename Count>
  void decode_row(std::size_t row, std::span<const std::uint32_t> sums, float scale, double weight,
                  bool makes_up, const Count& count, std::span<float> values) const;
  void settle_residual(std::span<const float> shared);

  const SumCoder& coder_;
  SumPlace place_;
  std::uint64_t key_;
  codec::RowLayout rows_;
  std::vector<float> coordinates_;
  std::vector<codec::RotatedRow> rotated_;
  std::vector<float> measures_;
  std::vector<float> scales_;
  std::shared_ptr<std::uint64_t[]> memory_;  // of the words
  std::span<std::uint64_t> words_;
  std::shared_ptr<std::uint64_t[]> own_words_;  // with error feedback
  std::vector<wire::RankSet> ranks_;
  std::size_t clipped_ = 0;
};

}  // namespace spillway::collective
