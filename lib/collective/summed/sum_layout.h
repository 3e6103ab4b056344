// SPDX-License-Identifier: Apache-2.0
//
// How an all-reduce by sums divides its tensor: a shard per owner, pieces per shard, a sum per
// piece (transport/sum.h). A piece is cut into rows, and their coordinates fill the lanes of chunks
// one after another. Owners are the group's parameter servers or, without these, all ranks.
//
// A pure value; every rank computes the same.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "codec/lanes.h"
#include "codec/row.h"
#include "collective/operation.h"
#include "collective/shards.h"
#include "wire/rank_set.h"

namespace spillway::collective {

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

}  // namespace spillway::collective
