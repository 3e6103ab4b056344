// SPDX-License-Identifier: Apache-2.0
//
// Runs of integers to bytes and back, without loss: one block, coded with a table that both ends
// have, with one that comes along, or without any where that is shorter.
//
// A block begins with its mode:
//
//   kRaw          width u8, then all values folded (alphabet.h), `width` bits each
//   kKnownTable   a coded body
//   kInlineTable  a table (ProbabilityTable::serialise), a coded body
//   kZero         nothing: all are zero
//   kConstant     i32: all are this
//
//   coded body    length of the raw bits as a base-128 number; the states, 4 bytes each; 16-bit
//                 words; the raw bits of offsets and escapes, first bit lowest
//
// Value i belongs to state i mod n; states share the stream of words in the order in which they
// need them. n is 4 below kManyValues values, so that a packet's worth costs little (a state is
// 2 bytes of overhead), and 32 from there on, which is what vectors decode. How many values there
// are is not in the block: whoever carries it knows.
//
// The encoder takes the shortest mode by the values' histogram, so a block is never longer than
// max_block_bytes(). The decoder trusts nothing: it reads inside the block only, does work bounded
// by the number of values, and takes a block as good only if states and streams end where an
// encoder begins. What is cut is an error, and so is nearly all that was changed; but a changed raw
// bit is another value, so carriers check their bytes (wire/ has tags).
//
// Coders keep scratch memory between blocks, some bytes per value. One thread each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/entropy/histogram.h"
#include "codec/entropy/probability_table.h"
#include "codec/entropy/rans_kernels.h"
#include "codec/entropy/rans_tables.h"

namespace spillway::codec::entropy {

enum class BlockMode : std::uint8_t {
  kRaw = 0,
  kKnownTable = 1,
  kInlineTable = 2,
  kZero = 3,
  kConstant = 4,
};

inline constexpr std::size_t kMaxBlockValues = std::size_t{1} << 28;

// What a block of so many values may take at most, all of which fold to `value_bits` bits (8 for
// int8, 16 for int16). Buffers are made this large.
constexpr std::size_t max_block_bytes(std::size_t values, unsigned value_bits = 32) {
  return 2 + values / 8 * value_bits + (values % 8 * value_bits + 7) / 8;
}

struct EncodedBlock {
  BlockMode mode;
  std::size_t values;
  std::size_t bytes;
  std::uint32_t table_hash;  // of the table it needs; 0 where it needs none
};

class BlockEncoder {
 public:
  explicit BlockEncoder(const RansKernels& kernels = best_rans_kernels()) : kernels_(&kernels) {}

  // Codes values with a table that the decoder has. `out` has at least max_block_bytes();
  // `counted`, if there is one, has the table's alphabet and gets the values added.
  template <typename Value>  // std::int8_t, std::int16_t, std::int32_t
  base::Result<EncodedBlock> encode(std::span<const Value> values, const EncodeTable& table,
                                    base::MutableByteView out, Histogram* counted = nullptr);

  // The same with the values' own table, which travels along.
  template <typename Value>
  base::Result<EncodedBlock> encode_inline(std::span<const Value> values, const Alphabet& alphabet,
                                           base::MutableByteView out, Histogram* counted = nullptr);

  // As many of the first values, up to `most`, as a block of out.size() bytes can have, give or
  // take a few; at least one, or an error.
  template <typename Value>
  base::Result<EncodedBlock> encode_prefix(std::span<const Value> values, std::size_t most,
                                           const EncodeTable& table, base::MutableByteView out,
                                           Histogram* counted = nullptr);

 private:
  // The shortest block of all values, or none if `out` is too small for it.
  template <typename Value>
  std::optional<EncodedBlock> shortest(std::span<const Value> values, const Alphabet& alphabet,
                                       const EncodeTable* known, base::MutableByteView out,
                                       Histogram* counted);
  template <typename Value, typename Symbol>
  std::optional<EncodedBlock> coded(std::span<const Value> values, const Alphabet& alphabet,
                                    const EncodeTable* known, base::MutableByteView out,
                                    std::vector<Symbol>& symbols, Histogram* counted);
  template <typename Value, typename Symbol>
  std::size_t write_body(std::span<const Value> values, const Symbol* symbols,
                         const EncodeTable& table, const Histogram& histogram,
                         base::MutableByteView out);

  const RansKernels* kernels_;
  std::vector<std::uint8_t> byte_symbols_;
  std::vector<std::uint16_t> word_symbols_;
  std::vector<std::uint16_t> words_;
  std::vector<std::uint8_t> raw_bits_;
};

class BlockDecoder {
 public:
  explicit BlockDecoder(const RansKernels& kernels = best_rans_kernels()) : kernels_(&kernels) {}

  // Decodes a block of values.size() values. `known` is the table of kKnownTable; without one such
  // a block is an error (kMismatch). After an error `values` may hold anything, and nothing was
  // counted; `counted` has the table's alphabet.
  template <typename Value>
  base::Status decode(base::ByteView block, const DecodeTable* known, std::span<Value> values,
                      Histogram* counted = nullptr);

 private:
  template <typename Value>
  base::Status read_coded(base::ByteView body, const DecodeTable& table, std::span<Value> values,
                          Histogram* counted);
  template <typename Value, typename Symbol>
  base::Status read_body(base::ByteView body, const DecodeTable& table, std::span<Value> values,
                         std::vector<Symbol>& symbols, Histogram* counted);

  const RansKernels* kernels_;
  std::vector<std::uint8_t> byte_symbols_;
  std::vector<std::uint16_t> word_symbols_;
};

}  // namespace spillway::codec::entropy
