// SPDX-License-Identifier: Apache-2.0
#include "codec/entropy/alphabet.h"

#include <fmt/format.h>

namespace spillway::codec::entropy {

base::Result<Alphabet> Alphabet::direct(unsigned symbols) {
  if (symbols < 2 || symbols > kMaxSymbols) {
    return base::invalid_argument(fmt::format(
        "an alphabet of {} symbols was asked for; from 2 to {} are possible, and ranges beyond",
        symbols, kMaxSymbols));
  }
  return Alphabet(AlphabetKind::kDirect, symbols);
}

base::Result<Alphabet> Alphabet::of(std::uint8_t kind, unsigned symbols) {
  if (kind == static_cast<std::uint8_t>(AlphabetKind::kDirect)) {
    return direct(symbols);
  }
  if (kind == static_cast<std::uint8_t>(AlphabetKind::kRanges) && symbols == kRangeSymbols) {
    return ranges();
  }
  return base::Status(
      base::StatusCode::kMalformed,
      fmt::format("no alphabet of kind {} has {} symbols; ask for the table again", kind, symbols));
}

std::uint32_t Alphabet::first_of(unsigned symbol) const {
  SPILLWAY_DCHECK(symbol < symbols_);
  if (symbol == escape()) {
    return 0;
  }
  if (kind_ == AlphabetKind::kDirect || symbol < kFirstRange) {
    return symbol;
  }
  return (4U + (symbol - kFirstRange) % 4) << bits_of(symbol);
}

unsigned Alphabet::bits_of(unsigned symbol) const {
  SPILLWAY_DCHECK(symbol < symbols_);
  if (symbol == escape()) {
    return kEscapeBits;
  }
  if (kind_ == AlphabetKind::kDirect || symbol < kFirstRange) {
    return 0;
  }
  return (symbol - kFirstRange) / 4 + kFirstOctave - kRangesLog2;
}

}  // namespace spillway::codec::entropy
