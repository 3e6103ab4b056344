// SPDX-License-Identifier: Apache-2.0
#include "collective/entropy/chunk_layout.h"

#include <algorithm>

#include "base/check.h"
#include "collective/halves.h"

namespace spillway::collective {

namespace {

// Enough that chunks of a short tensor are still about alike.
constexpr std::size_t kBlocksPerChunk = 16;
constexpr std::size_t kLeastBlockValues = 256;
constexpr std::size_t kBlockQuantum = 128;

std::size_t block_values_for(std::size_t count, std::uint16_t chunks) {
  const std::size_t wanted = piece_count(count, chunks * kBlocksPerChunk);
  const std::size_t rounded = piece_count(wanted, kBlockQuantum) * kBlockQuantum;
  return std::clamp(rounded, kLeastBlockValues, BlockGrid::kMostValues);
}

// Where chunks begin: at the first block with at least the earlier chunks' share of the cost before
// it.
std::vector<std::size_t> balanced_begins(std::span<const std::uint32_t> costs,
                                         std::uint16_t chunks) {
  std::vector<std::uint64_t> before{0};
  for (const std::uint32_t cost : costs) {
    before.push_back(before.back() + cost + 1);  // even a block without cost is some work
  }
  const std::size_t blocks = costs.size();
  std::vector<std::size_t> begins{0};
  for (std::uint16_t chunk = 1; chunk < chunks; ++chunk) {
    const std::uint64_t share =
        before.back() / chunks * chunk + before.back() % chunks * chunk / chunks;
    const auto found = std::lower_bound(before.begin(), before.end(), share) - before.begin();
    // At least one block for each chunk, while there are enough.
    const std::size_t last = blocks - std::min<std::size_t>(blocks, chunks - chunk);
    const std::size_t first = std::min(begins.back() + 1, last);
    begins.push_back(std::clamp(static_cast<std::size_t>(found), first, std::max(first, last)));
  }
  begins.push_back(blocks);
  return begins;
}

// Shares out blocks that are numbered from 0.
std::vector<BlockRun> share_out(std::size_t blocks, const ChunkOptions& options,
                                std::span<const std::uint32_t> costs) {
  std::vector<BlockRun> runs;
  if (options.rule == ChunkRule::kStriped) {
    for (std::size_t chunk = 0; chunk < options.chunks; ++chunk) {
      runs.push_back({chunk, options.chunks, shard_of(blocks, options.chunks, chunk).count});
    }
    return runs;
  }
  if (options.rule == ChunkRule::kBalanced && costs.size() == blocks) {
    const std::vector<std::size_t> begins = balanced_begins(costs, options.chunks);
    for (std::size_t chunk = 0; chunk < options.chunks; ++chunk) {
      runs.push_back({begins[chunk], 1, begins[chunk + 1] - begins[chunk]});
    }
    return runs;
  }
  for (std::size_t chunk = 0; chunk < options.chunks; ++chunk) {
    const Extent shard = shard_of(blocks, options.chunks, chunk);
    runs.push_back({shard.first, 1, shard.count});
  }
  return runs;
}

std::size_t most_pieces_of(std::size_t blocks, std::size_t block_values,
                           const ChunkOptions& options) {
  const std::size_t equal = piece_count(blocks, options.chunks) * block_values;
  return std::clamp<std::size_t>(piece_count(equal, options.piece_values), 1, options.most_pieces);
}

}  // namespace

BlockGrid::BlockGrid(std::size_t count, std::uint16_t chunks)
    : BlockGrid(std::span(&count, 1), block_values_for(count, chunks)) {}

BlockGrid::BlockGrid(std::span<const std::size_t> lengths, std::size_t block_values)
    : block_values_(block_values), sections_(lengths.size()) {
  SPILLWAY_CHECK(!lengths.empty() && lengths.size() <= kMostSections);
  Extent next;
  std::size_t next_block = 0;
  for (std::size_t section = 0; section < sections_; ++section) {
    next.count = lengths[section];
    extents_[section] = next;
    first_blocks_[section] = next_block;
    next.first += next.count;
    next_block += blocks_of(section).count;
  }
}

BlockGrid BlockGrid::of_parts(std::size_t part_values, std::uint16_t parts) {
  BlockGrid grid(part_values * parts, parts);
  grid.parts_ = parts;
  return grid;
}

BlockGrid grid_of(const Operation& operation, std::uint16_t ranks) {
  return is_half(operation) ? BlockGrid::of_parts(operation.count, ranks)
                            : BlockGrid(operation.count, ranks);
}

Extent BlockGrid::blocks_of_part(std::uint16_t part) const {
  if (parts_ == 1) {
    return {0, blocks()};
  }
  const std::size_t count = blocks() / parts_;
  return {part * count, count};
}

std::size_t BlockGrid::blocks() const {
  const Extent last = blocks_of(sections_ - 1);
  return last.first + last.count;
}

Extent BlockGrid::extent_of(std::size_t block) const {
  std::size_t section = sections_ - 1;
  while (first_blocks_[section] > block) {
    --section;
  }
  const std::size_t of_part = piece_count(part_values(section), block_values_);
  const std::size_t index = block - first_blocks_[section];
  const Extent part{extents_[section].first + index / of_part * part_values(section),
                    part_values(section)};
  return piece_of(part, block_values_, index % of_part);
}

std::size_t BlockGrid::values_of(const BlockRun& run) const {
  if (run.count == 0) {
    return 0;
  }
  return (run.count - 1) * block_values_ + extent_of(run.block(run.count - 1)).count;
}

std::vector<BlockRun> share_out_blocks(const BlockGrid& grid, const ChunkOptions& options,
                                       std::span<const std::uint32_t> costs) {
  return share_out(grid.blocks(), options, costs);
}

std::size_t most_pieces_of_chunk(const BlockGrid& grid, const ChunkOptions& options) {
  std::size_t most = 0;
  for (std::size_t section = 0; section < grid.sections(); ++section) {
    most =
        std::max(most, most_pieces_of(grid.blocks_of(section).count, grid.block_values(), options));
  }
  return most;
}

std::vector<ChunkPiece> cut_chunks(const BlockGrid& grid, const ChunkOptions& options,
                                   std::span<const std::uint32_t> costs) {
  std::vector<ChunkPiece> cut;
  for (std::size_t section = 0; section < grid.sections(); ++section) {
    const Extent all = grid.blocks_of(section);
    const std::size_t pieces = most_pieces_of(all.count, grid.block_values(), options);
    std::uint16_t chunk = 0;
    for (const BlockRun& run : share_out(all.count, options, costs)) {
      const std::size_t most = std::max<std::size_t>(piece_count(run.count, pieces), 1);
      std::size_t number = section;
      for (std::size_t first = 0; first < run.count; first += most) {
        const BlockRun blocks{all.first + run.block(first), run.stride,
                              std::min(most, run.count - first)};
        cut.push_back({chunk, static_cast<std::uint16_t>(number), blocks, grid.values_of(blocks),
                       static_cast<std::uint8_t>(section)});
        number += grid.sections();
      }
      ++chunk;
    }
  }
  return cut;
}

namespace {

EntropyRoute direct_route(const Group& group, std::uint16_t chunk) {
  EntropyRoute route;
  route.result_from = chunk;
  if (group.rank != chunk) {
    route.to = chunk;
    return route;
  }
  route.received_step = 1;
  for (std::uint16_t i = 1; i < group.world; ++i) {
    route.sources.push_back(static_cast<std::uint16_t>((group.rank + i) % group.world));
  }
  route.result_to = route.sources;
  return route;
}

EntropyRoute ring_route(const Group& group, std::uint16_t chunk) {
  const unsigned world = group.world;
  const auto next = static_cast<std::uint16_t>((group.rank + 1) % world);
  const auto previous = static_cast<std::uint16_t>((group.rank + world - 1) % world);
  const unsigned place = (group.rank + world - chunk) % world;  // hops from where it begins
  EntropyRoute route;
  if (place > 0) {
    route.sources.push_back(previous);
    route.received_step = static_cast<std::uint16_t>(place);
  }
  route.sent_step = static_cast<std::uint16_t>(place + 1);
  if (place + 1 < world) {
    route.to = next;
  }
  route.result_from = previous;
  if (place + 2 != world) {  // else the next rank made the sum
    route.result_to.push_back(next);
  }
  return route;
}

}  // namespace

EntropyRoute route_of(Algorithm algorithm, const Group& group, std::uint16_t chunk) {
  return algorithm == Algorithm::kRing ? ring_route(group, chunk) : direct_route(group, chunk);
}

EntropyRoute half_route_of(Kind half, const Group& group, std::uint16_t chunk) {
  EntropyRoute route = direct_route(group, chunk);
  if (half == Kind::kReduceScatter) {
    route.result_to.clear();
    return route;
  }
  route.sources.clear();
  route.only_receives = route.to.has_value();
  route.to.reset();
  return route;
}

}  // namespace spillway::collective
