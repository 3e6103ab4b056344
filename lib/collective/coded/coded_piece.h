// SPDX-License-Identifier: Apache-2.0
//
// The calculations for one piece of a coded all-reduce, at one rank:
//
//   prepare()         makes this rank's numbers, if they are not there yet (coded_content.h)
//   add_part()        a message from another rank ─► added to the numbers
//   encode_part()     numbers ─► a message to the rank that adds next
//   encode_sum()      numbers, which are the whole sum ─► a message to all ranks; delivered
//   take_sum()        such a message ─► numbers; delivered
//
// On the way the piece learns a table from every message, in both directions, for the next step.
//
// Calculations may run on any thread, one at a time per piece; they touch only the piece's blocks
// of the content.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "codec/entropy/message.h"
#include "collective/coded/coded_content.h"
#include "collective/coded/coded_route.h"
#include "collective/coded/coder_shelf.h"

namespace spillway::collective {

// Shared by the pieces of an operation.
struct PieceCoder {
  Group group;
  std::uint64_t sequence = 0;
  CodedContent& content;
  CoderShelf& shelf;
  bool counts_costs = false;
};

// The tables of a piece's messages. A table that is missing is sent along with its message.
struct PieceTables {
  std::optional<codec::entropy::ProbabilityTable> sent{};
  std::map<std::uint16_t, codec::entropy::ProbabilityTable> received{};  // by rank
  std::optional<codec::entropy::ProbabilityTable> sum{};
};

struct EncodedPart {
  std::vector<std::uint8_t> bytes;
  bool has_table = false;
};

class CodedPiece {
 public:
  // The coder outlives the piece, which codes by `tables`.
  CodedPiece(const PieceCoder& coder, const ChunkPiece& place, CodedRoute route, PieceTables tables)
      : coder_(coder), place_(place), route_(std::move(route)), tables_(std::move(tables)) {}

  const ChunkPiece& place() const { return place_; }
  const CodedRoute& route() const { return route_; }

  void prepare() { coder_.content.prepare(place_.blocks); }
  base::Status add_part(std::uint16_t from, base::ByteView message);
  base::Result<EncodedPart> encode_part();
  base::Result<EncodedPart> encode_sum();
  base::Status take_sum(base::ByteView message);

  // The tables that would have been best; the same at both ends of every message.
  const PieceTables& learned() const { return learned_; }
  // Bits of each block of the piece, if costs are counted.
  std::span<const std::uint32_t> costs() const { return costs_; }

 private:
  using Table = codec::entropy::ProbabilityTable;

  // The piece's numbers in a row, copied to `coders` unless they lie so; scatter() writes them
  // back.
  std::span<const std::int32_t> gather(Coders& coders) const;
  void scatter(std::span<const std::int32_t> numbers);
  base::Result<EncodedPart> encode(std::uint16_t step, const std::optional<Table>& table,
                                   std::optional<Table>& learned) const;
  // Decodes into the numbers of `coders`.
  base::Result<Table> decode(base::ByteView message, std::uint16_t step, const Table* table,
                             Coders& coders) const;
  const BlockGrid& grid() const { return coder_.content.grid(); }
  codec::entropy::Alphabet alphabet(std::uint16_t step) const {
    return coder_.content.alphabet(place_.section, step);
  }
  void deliver();
  void reckon_costs();

  const PieceCoder& coder_;
  ChunkPiece place_;
  CodedRoute route_;
  PieceTables tables_;
  PieceTables learned_;
  std::vector<std::uint32_t> costs_;
};

}  // namespace spillway::collective
