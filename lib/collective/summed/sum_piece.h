// SPDX-License-Identifier: Apache-2.0
//
// The calculations for one piece of an all-reduce by sums, at one rank: measure its rows, make
// numbers of them once the ranks share a scale, and make values of the sums of numbers.
//
//   measure()   values, plus the residual ─► rows, rotated, and what each measures
//   encode()    rows, the shared scale ─► words
//   decode()    sums, the ranks in each chunk ─► values, at the caller's output; and this rank's
//               new residual
//
// A tensor of levels may be on a device (Operation::device). Then its values stay there, words come
// and go, and calculations fail where the device does.
//
// Calculations may run on any thread, one at a time per piece. They touch only the piece's own
// extent of the caller's memory.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "base/status.h"
#include "codec/block_code.h"
#include "codec/lanes.h"
#include "codec/level_code.h"
#include "codec/row_codec.h"
#include "collective/device_tensor.h"
#include "collective/operation.h"
#include "collective/shards.h"
#include "wire/sum_datagram.h"

namespace spillway::collective {

// How an all-reduce by sums divides its tensor: a shard per owner, pieces per shard, a sum per
// piece (transport/message.h). A piece is cut into rows, and their coordinates fill the lanes of
// chunks one after another. Owners are the group's parameter servers or, without these, all ranks.
//
// A pure value; every rank computes the same.

static_assert(codec::kChunkWords == SPILLWAY_SUM_WORDS);

// Rows fit the first-level cache, and add only one scale to so many values.
inline constexpr unsigned kSumRowLog2 = 13;

struct SumPlace {
  Extent extent;  // of the tensor
  std::uint16_t owner = 0;
};

struct SumLayout {
  // `rack_ranks`: ranks that are numbered side by side behind one switch; 0: unknown.
  static base::Result<SumLayout> make(const Operation& operation, const Group& group,
                                      std::size_t piece_bytes, std::uint16_t rack_ranks);

  // Ranks whose parts are in a piece's sum, besides its owner's.
  wire::RankSet contributors_to(const SumPlace& place) const;
  // How many parts make a switch's sum whole (wire/sum_packet.h), as this rank's packets say.
  std::array<std::uint8_t, SPILLWAY_SUM_LEVELS> need_of(const SumPlace& place,
                                                        std::uint16_t rank) const;
  static codec::RowLayout rows_of(const SumPlace& place) {
    return {place.extent.count, kSumRowLog2};
  }
  // Coordinates of all rows, padding included.
  static std::size_t coordinates_of(const SumPlace& place);
  std::size_t chunks_of(const SumPlace& place) const {
    return lanes.chunks_for(coordinates_of(place));
  }

  Group group;
  std::uint16_t rack_ranks = 0;
  codec::LaneLayout lanes;
  std::vector<SumPlace> places;
};

// The largest number that one rank contributes to a lane.
std::uint32_t largest_number(const Operation& operation, const Group& group);

// Shared by the pieces of a run.
struct SumCoder {
  SumCoder(const Operation& operation, const SumLayout& layout, std::span<float> residual);

  const Operation& operation;
  const SumLayout& layout;
  std::variant<codec::LevelCode, codec::BlockCode> code;
  // The tensor's residual: what did not get into earlier sums; or empty.
  std::span<float> residual;

  bool has_residual() const { return !residual.empty(); }
  // The extent's part of the residual, which may be in a device's memory; null without one.
  float* residual_at(const Extent& extent) const {
    return residual.empty() ? nullptr : residual.data() + extent.first;
  }
  // Factor for the mean of the contributors.
  double weight() const;
};

class SumPiece {
 public:
  // `key`: of the rotations and draws, the same at all ranks.
  SumPiece(const SumCoder& coder, const SumPlace& place, std::uint64_t key);

  const SumPlace& place() const { return place_; }
  std::size_t row_count() const { return rows_.row_count(); }

  base::Status measure();
  // By row; the largest that any rank measured is the scale.
  std::span<float> measures() { return measures_; }

  // Encodes, with the scale of each row.
  base::Status encode(std::span<const float> scales);
  // For a piece that this rank owns and has no part of.
  void begin_empty();
  std::span<std::uint64_t> words() { return words_; }
  std::span<wire::RankSet> ranks() { return ranks_; }
  // Coordinates that were too large for a predicted scale.
  std::size_t clipped() const { return clipped_; }

  // `shared`: the largest measure by row, which shows rows that are not finite.
  base::Status decode(std::span<const float> shared);
  // Ranks in the chunk that has the fewest.
  unsigned fewest_contributors() const;

 private:
  struct Segment {
    std::size_t first;  // coordinate of the piece
    std::size_t count;
    std::size_t chunk;
  };
  // Visits the parts of a row, by chunk.
  template <typename Visit>
  void for_each_segment(std::size_t first, std::size_t count, Visit&& visit) const;
  codec::RotationId rotation(std::size_t row) const {
    return {key_, static_cast<std::uint32_t>(row)};
  }
  // Writes the numbers of all rows into words.
  void write_words(std::span<const std::uint32_t> numbers);
  base::Status encode_on_device();
  base::Status decode_on_device(std::span<const float> shared);
  DeviceLevels on_device() const;
  std::vector<float> own_values() const;
  std::vector<std::uint32_t> numbers_of(std::span<const std::uint64_t> words) const;
  // Decodes one row of sums into values; `count` tells how many of a chunk's ranks count.
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
  std::shared_ptr<std::uint64_t[]> memory_;  // owns the words
  std::span<std::uint64_t> words_;
  std::shared_ptr<std::uint64_t[]> own_words_;  // with error feedback
  std::vector<wire::RankSet> ranks_;
  std::size_t clipped_ = 0;
};

// The scales of tensors that recur: what the ranks measured together last time, by piece and row.
// An operation may code with scales predicted from it and so save a round trip. All ranks do, or
// none: which operation was the last of a tensor follows from the order of calls, and one whose
// measures are not all there yet is waited for.
//
// Bounded: kMaxTensors; the one with the lowest name is forgotten first, at all ranks alike. One
// thread.

struct TensorScales {
  std::vector<std::vector<float>> largest;  // by piece and row
  std::size_t known = 0;                    // pieces

  bool is_complete() const { return known == largest.size(); }
};

class ScaleCache {
 public:
  // The measures of the tensor's last operation, or null; and room for this one's.
  struct Entry {
    std::shared_ptr<const TensorScales> last;
    std::shared_ptr<TensorScales> own;
  };
  // `tensor` 0 means no name: nothing is kept.
  Entry next(std::uint64_t tensor) {
    Entry entry{nullptr, std::make_shared<TensorScales>()};
    if (tensor == 0) {
      return entry;
    }
    if (scales_.size() >= kMaxTensors && !scales_.contains(tensor)) {
      scales_.erase(scales_.begin());
    }
    std::shared_ptr<TensorScales>& kept = scales_[tensor];
    entry.last = kept;
    kept = entry.own;
    return entry;
  }

 private:
  static constexpr std::size_t kMaxTensors = 65'536;
  std::map<std::uint64_t, std::shared_ptr<TensorScales>> scales_;
};

}  // namespace spillway::collective
