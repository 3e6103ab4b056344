// SPDX-License-Identifier: Apache-2.0
#include "codec/entropy/alphabet.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/bytes.h"

namespace spillway::codec::entropy {

base::Result<Alphabet> Alphabet::direct(unsigned symbols) {
  if (symbols < 2 || symbols > kMaxSymbols) {
    return base::invalid_argument(
        fmt::format("a direct alphabet has 2 to {} symbols, not {}: use ranges for more",
                    kMaxSymbols, symbols));
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
  return base::Status(base::StatusCode::kMalformed,
                      fmt::format("a table names alphabet kind {} with {} symbols, which does not "
                                  "exist: request the table again",
                                  kind, symbols));
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

// ------------------------------------------------------------------ counts

namespace {

constexpr std::size_t kPiece = 4096;
// The bytes of one load have separate counters, so that an addition does not wait for an equal
// neighbour's.
constexpr std::size_t kTogether = sizeof(std::uint64_t);

}  // namespace

void Histogram::make_room(std::uint64_t count) {
  SPILLWAY_CHECK(count <= kMaxPortion);
  while (total_ + count > kMaxTotal) {
    halve();
  }
  total_ += count;
}

void Histogram::add_symbols(std::span<const std::uint8_t> symbols) {
  make_room(symbols.size());
  std::array<std::array<std::uint32_t, 256>, kTogether> parts{};
  std::size_t i = 0;
  for (; i + kTogether <= symbols.size(); i += kTogether) {
    const auto together = base::load_le<std::uint64_t>(symbols.data() + i);
    for (std::size_t k = 0; k < kTogether; ++k) {
      ++parts[k][together >> (8 * k) & 0xFFU];
    }
  }
  for (; i < symbols.size(); ++i) {
    ++parts[0][symbols[i]];
  }
  for (std::size_t symbol = 0; symbol < std::min<std::size_t>(counts_.size(), 256); ++symbol) {
    for (const auto& part : parts) {
      counts_[symbol] += part[symbol];
    }
  }
}

void Histogram::add_symbols(std::span<const std::uint16_t> symbols) {
  make_room(symbols.size());
  for (const std::uint16_t symbol : symbols) {
    ++counts_[symbol];
  }
}

template <typename Value>
void Histogram::add_values(std::span<const Value> values) {
  make_room(values.size());
  std::array<std::uint16_t, kPiece> symbols;
  for (std::size_t first = 0; first < values.size(); first += kPiece) {
    const auto piece = values.subspan(first, std::min(kPiece, values.size() - first));
    natural_symbols(alphabet_, piece, symbols.data());
    for (std::size_t i = 0; i < piece.size(); ++i) {
      ++counts_[symbols[i]];
    }
  }
}

void Histogram::add(std::span<const std::int8_t> values) {
  add_values(values);
}
void Histogram::add(std::span<const std::int16_t> values) {
  add_values(values);
}
void Histogram::add(std::span<const std::int32_t> values) {
  add_values(values);
}

void Histogram::add_run(std::int32_t value, std::uint64_t count) {
  add_symbol(alphabet_.code(fold(value)).symbol, count);
}

void Histogram::add_symbol(unsigned symbol, std::uint64_t count) {
  make_room(count);
  counts_[symbol] += static_cast<std::uint32_t>(count);
}

void Histogram::merge(const Histogram& other) {
  SPILLWAY_CHECK(alphabet_ == other.alphabet_);
  make_room(other.total_);
  for (std::size_t symbol = 0; symbol < counts_.size(); ++symbol) {
    counts_[symbol] += other.counts_[symbol];
  }
}

void Histogram::halve() {
  total_ = 0;
  for (std::uint32_t& count : counts_) {
    count = count / 2 + count % 2;
    total_ += count;
  }
}

void Histogram::clear() {
  std::fill(counts_.begin(), counts_.end(), 0U);
  total_ = 0;
}

double Histogram::entropy_bits() const {
  double bits = 0.0;
  for (unsigned symbol = 0; symbol < counts_.size(); ++symbol) {
    const auto count = static_cast<double>(counts_[symbol]);
    if (count > 0.0) {
      bits += count * (std::log2(static_cast<double>(total_) / count) + alphabet_.bits_of(symbol));
    }
  }
  return bits;
}

}  // namespace spillway::codec::entropy
