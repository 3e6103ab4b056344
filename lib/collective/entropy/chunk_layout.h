// SPDX-License-Identifier: Apache-2.0
//
// How an entropy-coded all-reduce divides its tensor. The tensor is cut into blocks of some
// thousand values, and blocks are dealt out to chunks, one per rank. A chunk is cut into pieces:
// runs of its blocks that travel as one message.
//
//   kEqual      equally many blocks in a row for each chunk
//   kBalanced   blocks in a row of equal cost: by the bits that blocks took last time
//   kStriped    block b to chunk b mod n: alike by mixing, and nothing need be remembered
//
// Equal counts of values take unequal numbers of bits, and all ranks wait for the longest chunk.
// Costs are equal at all ranks, so cuts are, too.
//
// If there are several kinds of numbers, one after another, each is a section, and every chunk has
// blocks of each. No block and no piece belongs to two sections, so that a piece's table fits all
// of it.
//
// Limits: a chunk has at most `most_pieces` pieces; pieces are longer where there would be more.
// Values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collective/operation.h"
#include "collective/shards.h"

namespace spillway::collective {

enum class ChunkRule : std::uint8_t { kEqual, kBalanced, kStriped };

// Blocks first, first + stride, ...
struct BlockRun {
  std::size_t first = 0;
  std::size_t stride = 1;
  std::size_t count = 0;

  std::size_t block(std::size_t index) const { return first + index * stride; }
};

struct ChunkPiece {
  std::uint16_t chunk = 0;
  // Within its chunk. Pieces of a section are numbered in steps of the number of sections, so that
  // a section that grows renames no piece of another.
  std::uint16_t number = 0;
  BlockRun blocks;
  std::size_t values = 0;
  std::uint8_t section = 0;
};

// The blocks of a tensor, or of what a sketch makes of it.
class BlockGrid {
 public:
  static constexpr std::size_t kMostValues = 4096;
  static constexpr std::size_t kMostSections = 3;

  // For tensors of `count` values. Every chunk has several blocks unless the tensor is too short.
  BlockGrid(std::size_t count, std::uint16_t chunks);
  // Parts of equal length, each in blocks of its own: for the halves of all-reduces.
  static BlockGrid of_parts(std::size_t part_values, std::uint16_t parts);
  // Sections of these lengths, which may be 0.
  BlockGrid(std::span<const std::size_t> lengths, std::size_t block_values);

  std::size_t blocks() const;
  std::size_t values() const {
    return extents_[sections_ - 1].first + extents_[sections_ - 1].count;
  }
  // The blocks of a part; of all of the grid if it has no parts.
  Extent blocks_of_part(std::uint16_t part) const;
  Extent extent_of(std::size_t block) const;
  std::size_t block_values() const { return block_values_; }
  std::size_t values_of(const BlockRun& run) const;

  std::size_t sections() const { return sections_; }
  Extent blocks_of(std::size_t section) const {
    return {first_blocks_[section], parts_ * piece_count(part_values(section), block_values_)};
  }

 private:
  std::size_t part_values(std::size_t section) const { return extents_[section].count / parts_; }

  std::size_t block_values_;
  std::size_t parts_ = 1;
  std::size_t sections_;
  std::array<Extent, kMostSections> extents_{};  // in numbers
  std::array<std::size_t, kMostSections> first_blocks_{};
};

// For the operation's tensor, in a group of so many ranks.
BlockGrid grid_of(const Operation& operation, std::uint16_t ranks);

struct ChunkOptions {
  std::uint16_t chunks = 1;
  ChunkRule rule = ChunkRule::kStriped;
  std::size_t piece_values = std::size_t{1} << 18;
  std::size_t most_pieces = 1;  // per chunk
};

// The blocks of each chunk, for a grid of one section. `costs` by block; without any, kBalanced is
// kEqual.
std::vector<BlockRun> share_out_blocks(const BlockGrid& grid, const ChunkOptions& options,
                                       std::span<const std::uint32_t> costs);

// The pieces of all chunks, those of a chunk and section in a row. A chunk without blocks has none.
// Costs are only for grids of one section.
std::vector<ChunkPiece> cut_chunks(const BlockGrid& grid, const ChunkOptions& options,
                                   std::span<const std::uint32_t> costs);

// Most pieces that a chunk has of each section, whatever the costs.
std::size_t most_pieces_of_chunk(const BlockGrid& grid, const ChunkOptions& options);

// The route of a chunk's numbers, as one rank sees it: which ranks parts of the sum come from,
// which rank this one sends its own to, and how the whole sum gets round.
//
//   kDirect   chunk c belongs to rank c: all others send it their parts, it sends them the sum. Two
//             steps, and two kinds of numbers: those of one rank and the sum of all
//   kRing     chunk c begins at rank c and goes round, every rank adding its part; rank c - 1 has
//             the sum, which goes round once more, coded once and passed on as it is. A kind of
//             numbers for each step: sums of 1, 2, ... ranks
//
// A step is the number of ranks in the sum that travels. Pure values.

struct EntropyRoute {
  std::vector<std::uint16_t> sources;  // ranks whose parts are added to this rank's
  std::uint16_t received_step = 0;     // ranks in each of these parts
  std::optional<std::uint16_t> to;     // the rank that gets this rank's; none: it has the whole sum
  std::uint16_t sent_step = 1;
  std::uint16_t result_from = 0;
  std::vector<std::uint16_t> result_to;
  bool only_receives = false;  // the part of another rank, in an all-gather

  bool has_sum() const { return !to && !only_receives; }
};

// `algorithm` is kDirect or kRing; one chunk per rank, two ranks at least.
EntropyRoute route_of(Algorithm algorithm, const Group& group, std::uint16_t chunk);
// For a half of an all-reduce, which is direct: in a reduce-scatter no result goes anywhere, and in
// an all-gather nothing is added.
EntropyRoute half_route_of(Kind half, const Group& group, std::uint16_t chunk);

}  // namespace spillway::collective
