// SPDX-License-Identifier: Apache-2.0
#include "collective/summed/sum_layout.h"

#include <fmt/format.h>

#include "codec/block_code.h"
#include "codec/level_code.h"
#include "transport/sum.h"

namespace spillway::collective {

std::uint32_t largest_number(const Operation& operation, const Group& group) {
  const unsigned contributors = group.workers();
  return operation.tolerance->code == SumCode::kBlocks
             ? codec::BlockCode::for_contributors(contributors).largest()
             : codec::choose_level_code(operation.tolerance->precision, contributors).range;
}

base::Result<SumLayout> SumLayout::make(const Operation& operation, const Group& group,
                                        std::size_t piece_bytes, std::uint16_t rack_ranks) {
  const base::Result<codec::LaneLayout> lanes =
      codec::LaneLayout::make(group.workers(), largest_number(operation, group));
  if (!lanes.ok()) {
    return lanes.status();
  }
  SumLayout layout{group, rack_ranks, *lanes, {}};
  const std::uint16_t owners = group.servers > 0 ? group.servers : group.world;
  const std::uint16_t first = group.servers > 0 ? group.workers() : std::uint16_t{0};
  const std::size_t most = std::max<std::size_t>(piece_bytes / sizeof(float), 1);
  for (std::uint16_t shard = 0; shard < owners; ++shard) {
    const Extent extent = shard_of(operation.count, owners, shard);
    for (std::size_t piece = 0; piece < piece_count(extent.count, most); ++piece) {
      layout.places.push_back(
          {piece_of(extent, most, piece), static_cast<std::uint16_t>(first + shard)});
    }
  }
  for (const SumPlace& place : layout.places) {
    if (layout.chunks_of(place) > transport::kMaxChunks) {
      return base::invalid_argument(
          fmt::format("{}: a piece of {} elements has more than {} chunks; use smaller pieces",
                      describe(operation), place.extent.count, transport::kMaxChunks));
    }
  }
  return layout;
}

wire::RankSet SumLayout::contributors_to(const SumPlace& place) const {
  wire::RankSet ranks = wire::RankSet::below(group.workers());
  ranks.erase(place.owner);
  return ranks;
}

std::array<std::uint8_t, SPILLWAY_SUM_LEVELS> SumLayout::need_of(const SumPlace& place,
                                                                 std::uint16_t rank) const {
  const wire::RankSet all = contributors_to(place);
  if (rack_ranks == 0 || rack_ranks >= group.workers()) {
    return {static_cast<std::uint8_t>(all.size()), 0};
  }
  std::uint8_t in_rack = 0;
  std::uint8_t beyond_owner = 0;
  all.for_each([&](std::uint16_t other) {
    in_rack += other / rack_ranks == rank / rack_ranks ? 1 : 0;
    beyond_owner += other / rack_ranks != place.owner / rack_ranks ? 1 : 0;
  });
  return {in_rack, beyond_owner};
}

std::size_t SumLayout::coordinates_of(const SumPlace& place) {
  const codec::RowLayout rows = rows_of(place);
  if (rows.row_count() == 0) {
    return 0;
  }
  const codec::Row last = rows.row(rows.row_count() - 1);
  return last.offset + last.length();
}

}  // namespace spillway::collective
