// SPDX-License-Identifier: Apache-2.0
//
// The scalar table, and the choice of a table.
#include "codec/entropy/rans_kernels.h"

#include <algorithm>
#include <array>

#include "base/environment.h"
#include "codec/entropy/rans_kernels_internal.h"
#include "codec/entropy/rans_scalar.h"

namespace spillway::codec::entropy {
namespace {

// States are processed in groups that fit registers, each group for a whole round.
template <typename Symbol>
std::uint16_t* encode_rounds(const EncodeTable& table, const Symbol* symbols_end,
                             std::size_t rounds, std::uint32_t* states, std::uint16_t* words_end) {
  const ExactEntry* entries = table.entries();
  std::array<std::uint32_t, kManyStates> x;
  std::copy_n(states, kManyStates, x.begin());
  std::uint16_t* words = words_end;
  const Symbol* symbols = symbols_end;
  for (; rounds > 0; --rounds) {
    symbols -= kManyStates;
    for (std::size_t i = kManyStates; i-- > 0;) {
      encode_symbol(entries[symbols[i]], x[i], words);
    }
  }
  std::copy_n(x.begin(), kManyStates, states);
  return words;
}

template <typename Symbol>
std::size_t decode_rounds(const DecodeTable& table, Symbol* symbols, std::size_t rounds,
                          std::uint32_t* states, WordStream& stream) {
  const std::uint32_t* entries = table.entries();
  const Symbol* slots = table.slots<Symbol>();
  std::array<std::uint32_t, kManyStates> x;
  std::copy_n(states, kManyStates, x.begin());
  WordStream words = stream;
  std::size_t round = 0;
  for (; round < rounds && words.words() >= kManyStates; ++round) {
    for (std::size_t i = 0; i < kManyStates; ++i) {
      symbols[i] = decode_symbol(entries, slots, x[i]);
      refill(x[i], words);
    }
    symbols += kManyStates;
  }
  std::copy_n(x.begin(), kManyStates, states);
  stream = words;
  return round;
}

std::vector<const RansKernels*> find_rans_kernels() {
  std::vector<const RansKernels*> tables;
#ifdef SPILLWAY_HAVE_RANS_HIGHWAY
  tables = highway_rans_kernels();
#endif
  tables.push_back(&scalar_rans_kernels());
  return tables;
}

const RansKernels& choose_rans_kernels() {
  const auto wanted = base::Environment::of_process().checked_text("SPILLWAY_SIMD");
  for (const RansKernels* table : available_rans_kernels()) {
    if (wanted.ok() && table->name == *wanted) {
      return *table;
    }
  }
  return *available_rans_kernels().front();
}

}  // namespace

const RansKernels& scalar_rans_kernels() {
  static constexpr RansKernels kTable = {
      .name = "scalar",
      .encode_bytes = encode_rounds<std::uint8_t>,
      .encode_words = encode_rounds<std::uint16_t>,
      .decode_bytes = decode_rounds<std::uint8_t>,
      .decode_words = decode_rounds<std::uint16_t>,
  };
  return kTable;
}

const std::vector<const RansKernels*>& available_rans_kernels() {
  static const std::vector<const RansKernels*> tables = find_rans_kernels();
  return tables;
}

const RansKernels& best_rans_kernels() {
  static const RansKernels& chosen = choose_rans_kernels();
  return chosen;
}

}  // namespace spillway::codec::entropy
