// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of the entropy coder, as a table of functions chosen once per process, like
// codec/kernels.h: the scalar table is the oracle, and every other gives the same bytes.
//
// Kernels do whole rounds: one symbol for each of kManyStates states, in the order of states. What
// is left, and blocks with fewer states, is done symbol by symbol (rans_scalar.h).
//
// Any thread; nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "codec/entropy/rans_tables.h"

namespace spillway::codec::entropy {

inline constexpr std::size_t kManyStates = 32;
inline constexpr std::size_t kFewStates = 4;
// Blocks with fewer values than this have kFewStates.
inline constexpr std::size_t kManyValues = std::size_t{1} << 15;

constexpr std::size_t states_for(std::size_t values) {
  return values < kManyValues ? kFewStates : kManyStates;
}

// Where decoding has come to: bytes of words, which need not be aligned.
struct WordStream {
  const std::uint8_t* next;
  const std::uint8_t* end;

  std::size_t words() const { return static_cast<std::size_t>(end - next) / 2; }
};

struct RansKernels {
  std::string_view name;

  // Encodes the `rounds` * kManyStates symbols before `symbols_end`, last first. Words go below
  // `words_end`, where there is room for one per symbol and kSlackWords more; returns the lowest.
  std::uint16_t* (*encode_bytes)(const EncodeTable& table, const std::uint8_t* symbols_end,
                                 std::size_t rounds, std::uint32_t* states,
                                 std::uint16_t* words_end);
  std::uint16_t* (*encode_words)(const EncodeTable& table, const std::uint16_t* symbols_end,
                                 std::size_t rounds, std::uint32_t* states,
                                 std::uint16_t* words_end);

  // Decodes up to `rounds` rounds, as many as the stream certainly has words for, and returns how
  // many; the stream is left behind the last word taken. Nothing outside the stream is read.
  std::size_t (*decode_bytes)(const DecodeTable& table, std::uint8_t* symbols, std::size_t rounds,
                              std::uint32_t* states, WordStream& stream);
  std::size_t (*decode_words)(const DecodeTable& table, std::uint16_t* symbols, std::size_t rounds,
                              std::uint32_t* states, WordStream& stream);
};

// Vectors write whole, below and above what they mean to.
inline constexpr std::size_t kSlackWords = 16;

// The oracle.
const RansKernels& scalar_rans_kernels();
// The fastest table this CPU runs, or the one that SPILLWAY_SIMD names if the CPU runs it.
const RansKernels& best_rans_kernels();
// Every table this CPU runs, fastest first; the scalar one is last.
const std::vector<const RansKernels*>& available_rans_kernels();

}  // namespace spillway::codec::entropy
