// SPDX-License-Identifier: Apache-2.0
//
// The calculations for one piece of an entropy-coded all-reduce, at one rank:
//
//   prepare()         makes this rank's numbers, if they are not there yet (entropy_content.h)
//   add_part()        a message from another rank ─► added to the numbers
//   encode_part()     numbers ─► a message to the rank that adds next
//   encode_sum()      numbers, which are the whole sum ─► a message to all ranks; delivered
//   take_sum()        such a message ─► numbers; delivered
//   deliver()         numbers, which are the whole sum, to this rank alone: in a reduce-scatter
//
// On the way the piece learns a table from every message, in both directions, for the next step.
//
// Calculations may run on any thread, one at a time per piece; they touch only the piece's blocks
// of the content.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "codec/entropy/block_coder.h"
#include "codec/entropy/message.h"
#include "collective/byte_payload.h"
#include "collective/entropy/chunk_layout.h"
#include "collective/entropy/entropy_content.h"
#include "collective/loan_pool.h"

namespace spillway::collective {

// A calculation takes one of these from a pool. Each takes some megabytes.
struct Coders {
  codec::entropy::BlockEncoder encoder;
  codec::entropy::BlockDecoder decoder;
  std::vector<std::int32_t> numbers;
  std::vector<std::uint8_t> bytes;
};
using CoderPool = LoanPool<Coders>;

// Shared by the pieces of an operation.
struct PieceCoder {
  Group group;
  std::uint64_t sequence = 0;
  EntropyContent& content;
  CoderPool& coder_pool;
  bool counts_costs = false;
  bool adds = true;  // false: in an all-gather, where what takes a sum's place is one rank's part

  std::uint16_t ranks_in_sum() const { return adds ? group.world : std::uint16_t{1}; }
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

class EntropyPiece {
 public:
  // The coder outlives the piece, which codes by `tables`.
  EntropyPiece(const PieceCoder& coder, const ChunkPiece& place, EntropyRoute route,
               PieceTables tables)
      : coder_(coder), place_(place), route_(std::move(route)), tables_(std::move(tables)) {}

  const ChunkPiece& place() const { return place_; }
  const EntropyRoute& route() const { return route_; }

  void prepare() { coder_.content.prepare(place_.blocks); }
  base::Status add_part(std::uint16_t from, base::ByteView message);
  base::Result<EncodedPart> encode_part();
  base::Result<EncodedPart> encode_sum();
  base::Status take_sum(base::ByteView message);
  void deliver();

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
  void reckon_costs();

  const PieceCoder& coder_;
  ChunkPiece place_;
  EntropyRoute route_;
  PieceTables tables_;
  PieceTables learned_;
  std::vector<std::uint32_t> costs_;
};

// Coded numbers in flight. Only their sender knows how long they are, so they travel as two
// messages: a lead of kLeadBytes, which begins with the header that tells the length
// (codec/entropy/message.h), and the rest, if there is any. Both are sent at once. A receiver
// expects the rest when it has the lead; packets of the rest that come earlier are kept by the
// endpoint, or retransmitted.
//
// Named by piece and phase: the lead has an even number, the rest the odd one after it. One thread;
// bytes stay where they are until both messages have ended.

inline constexpr std::size_t kLeadBytes = 128;

class OutgoingCode {
 public:
  // `bytes`: a whole message. The layout outlives it.
  OutgoingCode(std::vector<std::uint8_t> bytes, const ByteLayout& layout)
      : bytes_(std::move(bytes)), length_(bytes_.size()) {
    bytes_.resize(std::max(bytes_.size(), kLeadBytes));
    lead_.emplace(bytes_.data(), kLeadBytes, layout);
    rest_.emplace(bytes_.data() + kLeadBytes, bytes_.size() - kLeadBytes, layout);
  }
  OutgoingCode(const OutgoingCode&) = delete;
  OutgoingCode& operator=(const OutgoingCode&) = delete;

  base::ByteView message() const { return base::ByteView(bytes_).first(length_); }
  std::size_t rest_bytes() const { return bytes_.size() - kLeadBytes; }
  ByteSource& lead() { return *lead_; }
  ByteSource& rest() { return *rest_; }

 private:
  std::vector<std::uint8_t> bytes_;
  std::size_t length_;
  std::optional<ByteSource> lead_;
  std::optional<ByteSource> rest_;
};

class IncomingCode {
 public:
  explicit IncomingCode(const ByteLayout& layout)
      : layout_(layout), lead_(first_.data(), first_.size(), layout) {}
  IncomingCode(const IncomingCode&) = delete;
  IncomingCode& operator=(const IncomingCode&) = delete;

  ByteSink& lead() { return lead_; }

  // Valid once the lead is there: the length of the whole message, if it is at most `most`.
  std::optional<std::size_t> length(std::size_t most) const {
    constexpr std::size_t kBlockBytesAt = codec::entropy::kMessageHeaderBytes - 4;
    const std::size_t length = codec::entropy::kMessageHeaderBytes +
                               base::load_le<std::uint32_t>(first_.data() + kBlockBytesAt);
    return length <= most ? std::optional(length) : std::nullopt;
  }
  // Makes room for so many bytes, the lead included. Returns how many are left for rest().
  std::size_t begin_rest(std::size_t length) {
    bytes_.assign(first_.begin(),
                  first_.begin() + static_cast<std::ptrdiff_t>(std::min(length, kLeadBytes)));
    bytes_.resize(length);
    const std::size_t left = length - std::min(length, kLeadBytes);
    rest_.emplace(bytes_.data() + (length - left), left, layout_);
    return left;
  }
  ByteSink& rest() { return *rest_; }

  // Valid once all of it is there.
  base::ByteView bytes() const { return bytes_; }
  std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  const ByteLayout& layout_;
  std::array<std::uint8_t, kLeadBytes> first_{};
  std::vector<std::uint8_t> bytes_;
  ByteSink lead_;
  std::optional<ByteSink> rest_;
};

}  // namespace spillway::collective
