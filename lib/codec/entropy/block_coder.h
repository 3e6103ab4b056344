// SPDX-License-Identifier: Apache-2.0
//
// Lossless coding of runs of integers. A block uses a table known to both ends, or an inline table,
// or none if that is shorter.
//
// A block begins with its mode:
//
//   kRaw          width u8, then all values folded (alphabet.h), `width` bits each
//   kKnownTable   a coded body
//   kInlineTable  a table (ProbabilityTable::serialise), a coded body
//   kZero         nothing: all values are zero
//   kConstant     i32: the one value that all have
//
//   coded body    length of the raw bits as a base-128 number; the states, 4 bytes each; 16-bit
//                 words; the raw bits of offsets and escapes, lowest bit first
//
// Value i belongs to state i mod n. States share the stream of words in the order in which they
// need them. Below kManyValues values n is 4, so that small blocks have little overhead (2 bytes
// per state). Otherwise n is 32, the number that vectors decode at once. The block does not hold
// the number of values; its carrier knows it.
//
// block_encoder.cc chooses the shortest mode by the values' histogram, so a block never exceeds
// max_block_bytes(). block_decoder.cc trusts nothing. It reads only inside the block, its work is
// bounded by the number of values, and states and streams must end where an encoder begins.
// Truncation is always an error, and so is nearly every change. But a changed raw bit only gives
// another value, so carriers need checks of their own (wire/ has tags).
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
#include "codec/entropy/alphabet.h"
#include "codec/entropy/probability_table.h"
#include "codec/entropy/rans.h"

namespace spillway::codec::entropy {

enum class BlockMode : std::uint8_t {
  kRaw = 0,
  kKnownTable = 1,
  kInlineTable = 2,
  kZero = 3,
  kConstant = 4,
};

inline constexpr std::size_t kMaxBlockValues = std::size_t{1} << 28;

// The largest possible block for so many values, each of which folds to `value_bits` bits (8 for
// int8, 16 for int16). Buffers must have this size.
constexpr std::size_t max_block_bytes(std::size_t values, unsigned value_bits = 32) {
  return 2 + values / 8 * value_bits + (values % 8 * value_bits + 7) / 8;
}

struct EncodedBlock {
  BlockMode mode;
  std::size_t values;
  std::size_t bytes;
  std::uint32_t table_hash;  // of the table it needs; 0 if it needs none
};

class BlockEncoder {
 public:
  explicit BlockEncoder(const RansKernels& kernels = best_rans_kernels()) : kernels_(&kernels) {}

  // Encodes values with a table that the decoder has. `out` must have max_block_bytes(). `counted`
  // may be null; else it has the table's alphabet, and the values are added to it.
  template <typename Value>  // std::int8_t, std::int16_t, std::int32_t
  base::Result<EncodedBlock> encode(std::span<const Value> values, const EncodeTable& table,
                                    base::MutableByteView out, Histogram* counted = nullptr);

  // The same with a table made from the values, which travels in the block.
  template <typename Value>
  base::Result<EncodedBlock> encode_inline(std::span<const Value> values, const Alphabet& alphabet,
                                           base::MutableByteView out, Histogram* counted = nullptr);

  // Encodes about as many of the first values, up to `most`, as fit a block of out.size() bytes.
  // Fails if not even one fits.
  template <typename Value>
  base::Result<EncodedBlock> encode_prefix(std::span<const Value> values, std::size_t most,
                                           const EncodeTable& table, base::MutableByteView out,
                                           Histogram* counted = nullptr);

 private:
  // The shortest block for all values; empty if `out` is too small for it.
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

  // Decodes a block of values.size() values. `known` is the table for kKnownTable; if it is null,
  // such a block gives kMismatch. After an error the content of `values` is undefined and nothing
  // was counted. `counted` must have the table's alphabet.
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
