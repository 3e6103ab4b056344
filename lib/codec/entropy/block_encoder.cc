// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "codec/entropy/alphabet.h"
#include "codec/entropy/block_coder.h"
#include "codec/entropy/rans.h"

namespace spillway::codec::entropy {
namespace {

constexpr std::size_t kConstantBytes = 1 + 4;

template <typename Value>
unsigned folded_width(std::span<const Value> values) {
  std::uint32_t all = 0;
  for (const Value value : values) {
    all |= fold(value);
  }
  return static_cast<unsigned>(std::bit_width(all));
}

// The same from the histogram: all values of a symbol's range are as wide as its first.
template <typename Value>
unsigned folded_width(std::span<const Value> values, const Histogram& histogram) {
  const Alphabet& alphabet = histogram.alphabet();
  unsigned highest = alphabet.escape();
  while (highest > 0 && histogram.counts()[highest] == 0) {
    --highest;
  }
  return highest == alphabet.escape()
             ? folded_width(values)
             : static_cast<unsigned>(std::bit_width(alphabet.first_of(highest)));
}

template <typename Value>
std::optional<EncodedBlock> write_constant(std::span<const Value> values,
                                           base::MutableByteView out) {
  const std::int32_t value = values.empty() ? 0 : values.front();
  const BlockMode mode = value == 0 ? BlockMode::kZero : BlockMode::kConstant;
  base::ByteWriter writer(out);
  writer.write(static_cast<std::uint8_t>(mode));
  if (mode == BlockMode::kConstant) {
    writer.write(value);
  }
  if (!writer.ok()) {
    return std::nullopt;
  }
  return EncodedBlock{mode, values.size(), writer.position(), 0};
}

template <typename Value>
std::optional<EncodedBlock> write_raw(std::span<const Value> values, unsigned width,
                                      std::size_t bytes, base::MutableByteView out,
                                      std::vector<std::uint8_t>& scratch) {
  if (out.size() < bytes) {
    return std::nullopt;
  }
  scratch.resize(bytes + kBitSlack);
  scratch[0] = static_cast<std::uint8_t>(BlockMode::kRaw);
  scratch[1] = static_cast<std::uint8_t>(width);
  BitWriter bits(scratch.data() + 2);
  for (const Value value : values) {
    bits.put(fold(value), width);
  }
  std::memcpy(out.data(), scratch.data(), bytes);
  return EncodedBlock{BlockMode::kRaw, values.size(), bytes, 0};
}

// Indexed by natural symbol: how many low bits of a folded value follow as raw bits.
std::vector<std::uint8_t> raw_widths(const ProbabilityTable& table) {
  std::vector<std::uint8_t> widths(table.frequencies().size());
  for (unsigned symbol = 0; symbol < widths.size(); ++symbol) {
    widths[symbol] = static_cast<std::uint8_t>(
        table.frequencies()[symbol] > 0 ? table.alphabet().bits_of(symbol) : kEscapeBits);
  }
  return widths;
}

std::size_t raw_bits_of(std::span<const std::uint8_t> widths, const Histogram& histogram) {
  std::size_t bits = 0;
  for (std::size_t symbol = 0; symbol < widths.size(); ++symbol) {
    bits += std::size_t{histogram.counts()[symbol]} * widths[symbol];
  }
  return bits;
}

// In a direct alphabet most symbols have no raw bits, and escaped values are large. So runs below
// the lowest symbol with raw bits are skipped.
template <typename Value, typename Symbol>
void write_raw_bits(std::span<const Value> values, const Symbol* symbols,
                    std::span<const std::uint8_t> widths, BitWriter& bits) {
  const auto lowest = static_cast<std::size_t>(
      std::find_if(widths.begin(), widths.end(), [](std::uint8_t width) { return width > 0; }) -
      widths.begin());
  constexpr std::size_t kRun = 64;
  for (std::size_t first = 0; first < values.size(); first += kRun) {
    const std::size_t last = std::min(first + kRun, values.size());
    Symbol largest = 0;
    for (std::size_t i = first; i < last; ++i) {
      largest = std::max(largest, symbols[i]);
    }
    for (std::size_t i = first; largest >= lowest && i < last; ++i) {
      const unsigned width = widths[symbols[i]];
      const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
      bits.put(static_cast<std::uint32_t>(fold(values[i]) & mask), width);
    }
  }
}

// Encodes symbols first .. last - 1, last first; `first` belongs to the first state.
template <std::size_t kStates, typename Symbol>
std::uint16_t* encode_span(const EncodeTable& table, const Symbol* symbols, std::size_t first,
                           std::size_t last, std::uint32_t* states, std::uint16_t* words) {
  const ExactEntry* entries = table.entries();
  for (; (last - first) % kStates != 0; --last) {
    encode_symbol(entries[symbols[last - 1]], states[(last - 1) % kStates], words);
  }
  std::array<std::uint32_t, kStates> x;
  std::copy_n(states, kStates, x.begin());
  for (; last > first; last -= kStates) {
    for (std::size_t k = kStates; k-- > 0;) {
      encode_symbol(entries[symbols[last - kStates + k]], x[k], words);
    }
  }
  std::copy(x.begin(), x.end(), states);
  return words;
}

std::uint16_t* encode_all(const RansKernels& kernels, const EncodeTable& table,
                          const std::uint8_t* symbols_end, std::size_t rounds,
                          std::uint32_t* states, std::uint16_t* words) {
  return kernels.encode_bytes(table, symbols_end, rounds, states, words);
}

std::uint16_t* encode_all(const RansKernels& kernels, const EncodeTable& table,
                          const std::uint16_t* symbols_end, std::size_t rounds,
                          std::uint32_t* states, std::uint16_t* words) {
  return kernels.encode_words(table, symbols_end, rounds, states, words);
}

template <typename Symbol>
std::uint16_t* encode_symbols(const RansKernels& kernels, const EncodeTable& table,
                              const Symbol* symbols, std::size_t count, std::uint32_t* states,
                              std::uint16_t* words) {
  if (states_for(count) == kFewStates) {
    return encode_span<kFewStates>(table, symbols, 0, count, states, words);
  }
  const std::size_t rounds = count / kManyStates;
  const std::size_t whole = rounds * kManyStates;
  words = encode_span<kManyStates>(table, symbols, whole, count, states, words);
  return encode_all(kernels, table, symbols + whole, rounds, states, words);
}

void write_length(std::size_t length, base::ByteWriter& writer) {
  for (; length >= 0x80; length >>= 7) {
    writer.write(static_cast<std::uint8_t>(length | 0x80U));
  }
  writer.write(static_cast<std::uint8_t>(length));
}

}  // namespace

// Returns the number of bytes written, 0 if `out` is too small.
template <typename Value, typename Symbol>
std::size_t BlockEncoder::write_body(std::span<const Value> values, const Symbol* symbols,
                                     const EncodeTable& table, const Histogram& histogram,
                                     base::MutableByteView out) {
  const std::vector<std::uint8_t> widths = raw_widths(table.probabilities());
  const std::size_t raw_bits = raw_bits_of(widths, histogram);
  raw_bits_.resize((raw_bits + 7) / 8 + kBitSlack);
  BitWriter bits(raw_bits_.data());
  if (raw_bits > 0) {
    write_raw_bits(values, symbols, widths, bits);
  }
  words_.resize(values.size() + 2 * kSlackWords);
  std::array<std::uint32_t, kManyStates> states;
  states.fill(kStateMin);
  std::uint16_t* const words_end = words_.data() + words_.size();
  const std::uint16_t* words =
      encode_symbols(*kernels_, table, symbols, values.size(), states.data(), words_end);

  base::ByteWriter writer(out);
  write_length(bits.bytes(), writer);
  const auto bytes_of = [](const void* from, std::size_t size) {
    return base::ByteView(static_cast<const std::uint8_t*>(from), size);
  };
  writer.append(bytes_of(states.data(), states_for(values.size()) * sizeof(std::uint32_t)));
  writer.append(
      bytes_of(words, static_cast<std::size_t>(words_end - words) * sizeof(std::uint16_t)));
  writer.append(bytes_of(raw_bits_.data(), bits.bytes()));
  return writer.ok() ? writer.position() : 0;
}

template <typename Value, typename Symbol>
std::optional<EncodedBlock> BlockEncoder::coded(std::span<const Value> values,
                                                const Alphabet& alphabet, const EncodeTable* known,
                                                base::MutableByteView out,
                                                std::vector<Symbol>& symbols, Histogram* counted) {
  symbols.resize(std::max(symbols.size(), values.size()));
  natural_symbols(alphabet, values, symbols.data());
  Histogram histogram(alphabet);
  histogram.add_symbols(std::span<const Symbol>(symbols).first(values.size()));

  const unsigned width = folded_width(values, histogram);
  const std::size_t raw_bytes = max_block_bytes(values.size(), width);
  std::optional<EncodeTable> own;
  if (known == nullptr) {
    own.emplace(ProbabilityTable::of_counts(histogram));
  }
  const EncodeTable& table = known != nullptr ? *known : *own;
  std::optional<EncodedBlock> block;
  if (table.probabilities().cost_q8(histogram) / (8 * 256) < raw_bytes) {
    const BlockMode mode = own ? BlockMode::kInlineTable : BlockMode::kKnownTable;
    base::ByteWriter writer(out.first(std::min(out.size(), raw_bytes)));
    writer.write(static_cast<std::uint8_t>(mode));
    if (own) {
      own->probabilities().serialise(writer);
    }
    const std::size_t head = writer.position();
    const std::size_t body = writer.ok() ? write_body(values, symbols.data(), table, histogram,
                                                      writer.reserve(writer.remaining()))
                                         : 0;
    if (body > 0) {
      block = {mode, values.size(), head + body, table.probabilities().hash()};
    }
  }
  if (!block) {
    block = write_raw(values, width, raw_bytes, out, raw_bits_);
  }
  if (block && counted != nullptr) {
    counted->merge(histogram);
  }
  return block;
}

template <typename Value>
std::optional<EncodedBlock> BlockEncoder::shortest(std::span<const Value> values,
                                                   const Alphabet& alphabet,
                                                   const EncodeTable* known,
                                                   base::MutableByteView out, Histogram* counted) {
  const bool is_constant =
      std::all_of(values.begin(), values.end(), [&](Value value) { return value == values[0]; });
  const bool is_zero = values.empty() || (is_constant && values[0] == 0);
  if (is_zero ||
      (is_constant && kConstantBytes <= max_block_bytes(values.size(), folded_width(values)))) {
    const std::optional<EncodedBlock> block = write_constant(values, out);
    if (block && counted != nullptr && !values.empty()) {
      counted->add_run(values[0], values.size());
    }
    return block;
  }
  if (alphabet.symbols() <= 256) {
    return coded(values, alphabet, known, out, byte_symbols_, counted);
  }
  return coded(values, alphabet, known, out, word_symbols_, counted);
}

namespace {

template <typename Value>
base::Status check_encode(std::span<const Value> values, const Alphabet& alphabet,
                          base::MutableByteView out, const Histogram* counted) {
  if (values.size() > kMaxBlockValues) {
    return {base::StatusCode::kLimitExceeded,
            fmt::format("a block has at most {} values, not {}: split it", kMaxBlockValues,
                        values.size())};
  }
  if (out.size() < max_block_bytes(values.size(), 8 * sizeof(Value))) {
    return base::invalid_argument(fmt::format(
        "{} values may take {} bytes, but the output has {}: allocate max_block_bytes()",
        values.size(), max_block_bytes(values.size(), 8 * sizeof(Value)), out.size()));
  }
  if (counted != nullptr && !(counted->alphabet() == alphabet)) {
    return base::invalid_argument("the histogram and the table have different alphabets");
  }
  return {};
}

}  // namespace

template <typename Value>
base::Result<EncodedBlock> BlockEncoder::encode(std::span<const Value> values,
                                                const EncodeTable& table, base::MutableByteView out,
                                                Histogram* counted) {
  const Alphabet& alphabet = table.probabilities().alphabet();
  if (base::Status status = check_encode(values, alphabet, out, counted); !status.ok()) {
    return status;
  }
  const std::optional<EncodedBlock> block = shortest(values, alphabet, &table, out, counted);
  SPILLWAY_CHECK(block.has_value());
  return *block;
}

template <typename Value>
base::Result<EncodedBlock> BlockEncoder::encode_inline(std::span<const Value> values,
                                                       const Alphabet& alphabet,
                                                       base::MutableByteView out,
                                                       Histogram* counted) {
  if (base::Status status = check_encode(values, alphabet, out, counted); !status.ok()) {
    return status;
  }
  const std::optional<EncodedBlock> block = shortest(values, alphabet, nullptr, out, counted);
  SPILLWAY_CHECK(block.has_value());
  return *block;
}

template <typename Value>
base::Result<EncodedBlock> BlockEncoder::encode_prefix(std::span<const Value> values,
                                                       std::size_t most, const EncodeTable& table,
                                                       base::MutableByteView out,
                                                       Histogram* counted) {
  const Alphabet& alphabet = table.probabilities().alphabet();
  if (counted != nullptr && !(counted->alphabet() == alphabet)) {
    return base::invalid_argument("the histogram and the table have different alphabets");
  }
  most = std::min({most, values.size(), kMaxBlockValues});
  constexpr std::size_t kOverhead = 1 + 2 + kFewStates * sizeof(std::uint32_t) / 2;
  const std::size_t room = out.size() > kOverhead ? (out.size() - kOverhead) * 8 * 256 : 0;
  std::size_t count = 0;
  for (std::size_t cost = 0; count < most; ++count) {
    cost += table.costs_q8()[alphabet.code(fold(values[count])).symbol];
    if (cost > room) {
      break;
    }
  }
  // The remaining uncertainty is small: a state's last bits, and raw blocks, which may be shorter.
  for (count = std::max<std::size_t>(count, std::min<std::size_t>(most, 1)); count > 0;
       count -= count / 128 + 1) {
    const auto block = shortest(values.first(count), alphabet, &table, out, counted);
    if (block) {
      return *block;
    }
  }
  if (values.empty()) {
    return base::invalid_argument("there is no value to encode");
  }
  return base::invalid_argument(fmt::format("not even one value fits {} bytes: provide at least {}",
                                            out.size(), max_block_bytes(1)));
}

#define SPILLWAY_ENCODER(Value)                                                       \
  template base::Result<EncodedBlock> BlockEncoder::encode(                           \
      std::span<const Value>, const EncodeTable&, base::MutableByteView, Histogram*); \
  template base::Result<EncodedBlock> BlockEncoder::encode_inline(                    \
      std::span<const Value>, const Alphabet&, base::MutableByteView, Histogram*);    \
  template base::Result<EncodedBlock> BlockEncoder::encode_prefix(                    \
      std::span<const Value>, std::size_t, const EncodeTable&, base::MutableByteView, Histogram*);
SPILLWAY_ENCODER(std::int8_t)
SPILLWAY_ENCODER(std::int16_t)
SPILLWAY_ENCODER(std::int32_t)
#undef SPILLWAY_ENCODER

}  // namespace spillway::codec::entropy
