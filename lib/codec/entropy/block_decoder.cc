// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "codec/entropy/alphabet.h"
#include "codec/entropy/block_coder.h"
#include "codec/entropy/rans.h"

namespace spillway::codec::entropy {
namespace {

base::Status bad_block(const char* what) {
  return {base::StatusCode::kMalformed, fmt::format("a coded block {}: request it again", what)};
}

base::Status too_wide() {
  return bad_block("has values that do not fit the output's type");
}

template <typename Value>
bool fits(std::int32_t value) {
  return value == static_cast<Value>(value);
}

// A base-128 number; if it does not end in time, a number larger than any valid length.
std::size_t read_length(base::ByteReader& reader) {
  std::size_t length = 0;
  for (unsigned shift = 0; shift < 35; shift += 7) {
    const auto byte = reader.read<std::uint8_t>();
    length |= std::size_t{byte & 0x7FU} << shift;
    if (byte < 0x80) {
      return length;
    }
  }
  return SIZE_MAX;
}

// Decodes whole rounds of symbols from `first` on, while there are certainly words for one round.
// Whether a state needs a word is unpredictable and must not be a branch. Returns where it stopped.
// States and stream are local copies, because stored bytes might alias anything.
template <std::size_t kStates, typename Symbol>
std::size_t decode_whole_rounds(const DecodeTable& table, Symbol* symbols, std::size_t first,
                                std::size_t last, std::uint32_t* states, WordStream& stream) {
  const std::uint32_t* entries = table.entries();
  const Symbol* slots = table.slots<Symbol>();
  std::array<std::uint32_t, kStates> x;
  std::copy_n(states, kStates, x.begin());
  WordStream left = stream;
  for (; first + kStates <= last && left.words() >= kStates; first += kStates) {
    for (std::size_t k = 0; k < kStates; ++k) {
      symbols[first + k] = decode_symbol(entries, slots, x[k]);
      refill(x[k], left);
    }
  }
  std::copy(x.begin(), x.end(), states);
  stream = left;
  return first;
}

// Decodes symbols first .. last - 1, where `first` belongs to the first state; false if words run
// out.
template <std::size_t kStates, typename Symbol>
bool decode_span(const DecodeTable& table, Symbol* symbols, std::size_t first, std::size_t last,
                 std::uint32_t* states, WordStream& stream) {
  const std::uint32_t* entries = table.entries();
  const Symbol* slots = table.slots<Symbol>();
  first = decode_whole_rounds<kStates>(table, symbols, first, last, states, stream);
  for (std::size_t i = first; i < last; ++i) {
    std::uint32_t& state = states[i % kStates];
    symbols[i] = decode_symbol(entries, slots, state);
    if (state < kStateMin) {
      if (stream.words() == 0) {
        return false;
      }
      refill(state, stream);
    }
  }
  return true;
}

std::size_t decode_all(const RansKernels& kernels, const DecodeTable& table, std::uint8_t* symbols,
                       std::size_t rounds, std::uint32_t* states, WordStream& stream) {
  return kernels.decode_bytes(table, symbols, rounds, states, stream);
}

std::size_t decode_all(const RansKernels& kernels, const DecodeTable& table, std::uint16_t* symbols,
                       std::size_t rounds, std::uint32_t* states, WordStream& stream) {
  return kernels.decode_words(table, symbols, rounds, states, stream);
}

template <typename Symbol>
bool decode_symbols(const RansKernels& kernels, const DecodeTable& table, Symbol* symbols,
                    std::size_t count, std::uint32_t* states, WordStream& stream) {
  if (states_for(count) == kFewStates) {
    return decode_span<kFewStates>(table, symbols, 0, count, states, stream);
  }
  const std::size_t rounds =
      decode_all(kernels, table, symbols, count / kManyStates, states, stream);
  return decode_span<kManyStates>(table, symbols, rounds * kManyStates, count, states, stream);
}

// The position of the next escape from `first` on; `count` if there is none. Escapes are rare, so
// most of the work is the search.
template <typename Symbol>
std::size_t next_escape(const Symbol* symbols, std::size_t first, std::size_t count,
                        unsigned escape) {
  if (first == count) {
    return count;
  }
  if constexpr (sizeof(Symbol) == 1) {
    const void* found = std::memchr(symbols + first, static_cast<int>(escape), count - first);
    return found == nullptr ? count
                            : static_cast<std::size_t>(static_cast<const Symbol*>(found) - symbols);
  } else {
    return static_cast<std::size_t>(std::find(symbols + first, symbols + count, escape) - symbols);
  }
}

// Resolves escapes among direct symbols: reads their values from raw bits, and replaces the escape
// by the natural symbol.
template <typename Value, typename Symbol>
bool resolve_escapes(const Alphabet& alphabet, Symbol* symbols, std::span<Value> values,
                     BitReader& bits) {
  const auto next = [&](std::size_t first) {
    return next_escape(symbols, first, values.size(), alphabet.escape());
  };
  bool is_good = true;
  for (std::size_t i = next(0); i < values.size(); i = next(i + 1)) {
    const std::uint32_t folded = bits.get(kEscapeBits);
    is_good &= fits<Value>(unfold(folded));
    values[i] = static_cast<Value>(unfold(folded));
    symbols[i] = static_cast<Symbol>(alphabet.code(folded).symbol);
  }
  return is_good;
}

// Converts direct symbols except escapes to values; false if a value does not fit.
template <typename Value, typename Symbol>
bool unfold_direct(const Symbol* symbols, unsigned escape, std::span<Value> values) {
  if constexpr (sizeof(Symbol) == 1) {
    for (std::size_t i = 0; i < values.size(); ++i) {  // in bytes: all symbols below 256 fit
      const std::uint8_t symbol = symbols[i];
      values[i] = static_cast<Value>(
          static_cast<std::int8_t>(symbol >> 1 ^ static_cast<std::uint8_t>(0U - (symbol & 1U))));
    }
    return true;
  } else {
    bool is_good = true;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int32_t value = unfold(symbols[i]);
      is_good &= symbols[i] == escape || fits<Value>(value);
      values[i] = static_cast<Value>(value);
    }
    return is_good;
  }
}

template <typename Value, typename Symbol>
bool unfold_ranges(const DecodeTable& table, Symbol* symbols, std::span<Value> values,
                   BitReader& bits) {
  const Alphabet& alphabet = table.probabilities().alphabet();
  const SymbolRange* ranges = table.ranges();
  bool is_good = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const SymbolRange range = ranges[symbols[i]];
    const std::uint32_t folded = range.first + bits.get(range.bits);
    is_good &= fits<Value>(unfold(folded));
    values[i] = static_cast<Value>(unfold(folded));
    if (symbols[i] == alphabet.escape()) {
      symbols[i] = static_cast<Symbol>(alphabet.code(folded).symbol);
    }
  }
  return is_good;
}

template <typename Value, typename Symbol>
bool unfold_symbols(const DecodeTable& table, Symbol* symbols, std::span<Value> values,
                    BitReader& bits, bool has_raw_bits) {
  const Alphabet& alphabet = table.probabilities().alphabet();
  if (alphabet.kind() == AlphabetKind::kRanges) {
    return unfold_ranges(table, symbols, values, bits);
  }
  if (!unfold_direct(symbols, alphabet.escape(), values)) {
    return false;
  }
  // Without raw bits there must be no escapes, or they would all read as zero.
  if (!has_raw_bits) {
    return next_escape(symbols, 0, values.size(), alphabet.escape()) == values.size();
  }
  return resolve_escapes(alphabet, symbols, values, bits);
}

template <typename Value>
base::Status read_raw(base::ByteView block, std::span<Value> values) {
  const unsigned width = block.size() > 1 ? block[1] : 33;
  if (width > 32 || block.size() != max_block_bytes(values.size(), width)) {
    return bad_block("of raw values has the wrong length");
  }
  BitReader bits(block.subspan(2));
  bool is_good = true;
  for (Value& value : values) {
    const std::int32_t wide = unfold(bits.get(width));
    is_good &= fits<Value>(wide);
    value = static_cast<Value>(wide);
  }
  return is_good ? base::Status() : too_wide();
}

template <typename Value>
base::Status read_constant(base::ByteView block, std::span<Value> values) {
  base::ByteReader reader(block.subspan(1));
  const auto value = reader.read<std::int32_t>();
  if (!reader.ok() || reader.remaining() != 0) {
    return bad_block("of one value has the wrong length");
  }
  if (!fits<Value>(value)) {
    return too_wide();
  }
  std::fill(values.begin(), values.end(), static_cast<Value>(value));
  return {};
}

base::Status no_such_table() {
  return {base::StatusCode::kMismatch,
          "a block was coded with a table that this rank lacks: request one with an inline table"};
}

}  // namespace

template <typename Value, typename Symbol>
base::Status BlockDecoder::read_body(base::ByteView body, const DecodeTable& table,
                                     std::span<Value> values, std::vector<Symbol>& symbols,
                                     Histogram* counted) {
  const Alphabet& alphabet = table.probabilities().alphabet();
  if (counted != nullptr && !(counted->alphabet() == alphabet)) {
    return base::invalid_argument("the histogram and the table have different alphabets");
  }
  base::ByteReader reader(body);
  const std::size_t raw_bytes = read_length(reader);
  std::array<std::uint32_t, kManyStates> states{};
  const std::size_t state_count = states_for(values.size());
  for (std::size_t i = 0; i < state_count; ++i) {
    states[i] = reader.read<std::uint32_t>();
  }
  if (!reader.ok() || raw_bytes > reader.remaining() ||
      (reader.remaining() - raw_bytes) % sizeof(std::uint16_t) != 0) {
    return bad_block("is truncated");
  }
  const auto is_below = [](std::uint32_t state) { return state < kStateMin; };
  if (std::any_of(states.begin(), states.begin() + state_count, is_below)) {
    return bad_block("begins with an invalid state");
  }
  const base::ByteView words = reader.take(reader.remaining() - raw_bytes);
  WordStream stream{words.data(), words.data() + words.size()};
  symbols.resize(std::max(symbols.size(), values.size()));
  if (!decode_symbols(*kernels_, table, symbols.data(), values.size(), states.data(), stream)) {
    return bad_block("has fewer words than its values need");
  }
  const auto is_first = [](std::uint32_t state) { return state == kStateMin; };
  if (stream.next != stream.end ||
      !std::all_of(states.begin(), states.begin() + state_count, is_first)) {
    return bad_block("does not end in the encoder's initial state");
  }
  BitReader bits(reader.take(raw_bytes));
  if (!unfold_symbols(table, symbols.data(), values, bits, raw_bytes > 0)) {
    return bad_block("has values that do not fit the output's type");
  }
  if (!bits.is_at_end()) {
    return bad_block("has the wrong number of raw bits");
  }
  if (counted != nullptr) {
    counted->add_symbols(std::span<const Symbol>(symbols).first(values.size()));
  }
  return {};
}

template <typename Value>
base::Status BlockDecoder::read_coded(base::ByteView body, const DecodeTable& table,
                                      std::span<Value> values, Histogram* counted) {
  if (table.has_byte_symbols()) {
    return read_body(body, table, values, byte_symbols_, counted);
  }
  return read_body(body, table, values, word_symbols_, counted);
}

template <typename Value>
base::Status BlockDecoder::decode(base::ByteView block, const DecodeTable* known,
                                  std::span<Value> values, Histogram* counted) {
  if (values.size() > kMaxBlockValues) {
    return {base::StatusCode::kLimitExceeded,
            fmt::format("a block has at most {} values, not {}", kMaxBlockValues, values.size())};
  }
  if (block.empty()) {
    return bad_block("is empty");
  }
  base::Status status;
  switch (static_cast<BlockMode>(block[0])) {
    case BlockMode::kKnownTable:
      return known == nullptr ? no_such_table()
                              : read_coded(block.subspan(1), *known, values, counted);
    case BlockMode::kInlineTable: {
      base::ByteReader reader(block.subspan(1));
      base::Result<ProbabilityTable> table = ProbabilityTable::parse(reader);
      if (!table.ok()) {
        return table.status();
      }
      return read_coded(block.subspan(1 + reader.position()), DecodeTable(std::move(table).value()),
                        values, counted);
    }
    case BlockMode::kRaw:
      status = read_raw(block, values);
      break;
    case BlockMode::kConstant:
      status = read_constant(block, values);
      break;
    case BlockMode::kZero:
      if (block.size() != 1) {
        return bad_block("of zeros has trailing bytes");
      }
      std::fill(values.begin(), values.end(), Value{0});
      break;
    default:
      return bad_block("has an unknown mode");
  }
  if (status.ok() && counted != nullptr) {
    counted->add(std::span<const Value>(values));
  }
  return status;
}

#define SPILLWAY_DECODER(Value)                                                                    \
  template base::Status BlockDecoder::decode(base::ByteView, const DecodeTable*, std::span<Value>, \
                                             Histogram*);
SPILLWAY_DECODER(std::int8_t)
SPILLWAY_DECODER(std::int16_t)
SPILLWAY_DECODER(std::int32_t)
#undef SPILLWAY_DECODER

}  // namespace spillway::codec::entropy
