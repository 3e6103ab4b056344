// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of the entropy coder, as a table of functions chosen once per process, like
// codec/kernels.h. The scalar table is the oracle; all others give the same bytes.
//
// Kernels do whole rounds: one symbol for each of kManyStates states, in the order of states.
// Remainders, and blocks with fewer states, are coded symbol by symbol (rans_scalar.h).
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

// The decoder's position in the words, which need not be aligned.
struct WordStream {
  const std::uint8_t* next;
  const std::uint8_t* end;

  std::size_t words() const { return static_cast<std::size_t>(end - next) / 2; }
};

struct RansKernels {
  std::string_view name;

  // Encodes the `rounds` * kManyStates symbols before `symbols_end`, last first. Words are written
  // below `words_end`, which needs room for one per symbol plus kSlackWords. Returns the lowest
  // word.
  std::uint16_t* (*encode_bytes)(const EncodeTable& table, const std::uint8_t* symbols_end,
                                 std::size_t rounds, std::uint32_t* states,
                                 std::uint16_t* words_end);
  std::uint16_t* (*encode_words)(const EncodeTable& table, const std::uint16_t* symbols_end,
                                 std::size_t rounds, std::uint32_t* states,
                                 std::uint16_t* words_end);

  // Decodes up to `rounds` rounds, as many as the stream certainly has words for, and returns their
  // number. The stream then points behind the last word taken. Nothing outside the stream is read.
  std::size_t (*decode_bytes)(const DecodeTable& table, std::uint8_t* symbols, std::size_t rounds,
                              std::uint32_t* states, WordStream& stream);
  std::size_t (*decode_words)(const DecodeTable& table, std::uint16_t* symbols, std::size_t rounds,
                              std::uint32_t* states, WordStream& stream);
};

// Vectors are stored whole, so some words beyond the results are written too.
inline constexpr std::size_t kSlackWords = 16;

// The oracle.
const RansKernels& scalar_rans_kernels();
// The fastest table for this CPU, or the one named by SPILLWAY_SIMD if the CPU can run it.
const RansKernels& best_rans_kernels();
// All tables that this CPU can run, fastest first; the scalar one is last.
const std::vector<const RansKernels*>& available_rans_kernels();

}  // namespace spillway::codec::entropy
