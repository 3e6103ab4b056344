// SPDX-License-Identifier: Apache-2.0
//
// The natural symbols (alphabet.h) of whole spans of values. Header-only; compilers vectorise the
// loops.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>

#include "codec/entropy/alphabet.h"

namespace spillway::codec::entropy {

// `symbols` has room for one per value; its type must hold the alphabet.
template <typename Value, typename Symbol>
void natural_symbols(const Alphabet& alphabet, std::span<const Value> values, Symbol* symbols) {
  if (alphabet.kind() == AlphabetKind::kRanges) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      symbols[i] = static_cast<Symbol>(alphabet.code(fold(values[i])).symbol);
    }
    return;
  }
  // Folds in the values' own width, which gives more lanes for narrow types.
  using Folded = std::make_unsigned_t<Value>;
  constexpr unsigned kSignShift = 8 * sizeof(Value) - 1;
  const auto escape = static_cast<std::uint32_t>(alphabet.escape());
  const auto last = static_cast<Folded>(std::min<std::uint64_t>(escape, static_cast<Folded>(-1)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto folded = static_cast<Folded>(static_cast<Folded>(values[i]) << 1 ^
                                            static_cast<Folded>(values[i] >> kSignShift));
    symbols[i] = static_cast<Symbol>(std::min(folded, last));
  }
}

}  // namespace spillway::codec::entropy
