// SPDX-License-Identifier: Apache-2.0
#include "codec/entropy/rans.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/environment.h"

namespace spillway::codec::entropy {

// ------------------------------------------------------------------ tables

namespace {

// `frequency` is 1 .. 2^14 - 1 in both.
ExactEntry exact_entry(std::uint32_t frequency, std::uint32_t start) {
  if (frequency == 1) {
    return {UINT64_MAX, start + kProbabilityTotal - 1, 1};
  }
  return {UINT64_MAX / frequency + 1, start, frequency};
}

LaneEntry lane_entry(std::uint32_t frequency, std::uint32_t start) {
  const auto pack = [&](std::uint64_t reciprocal, unsigned shift_code) {
    return LaneEntry{static_cast<std::uint32_t>(reciprocal),
                     frequency | start << kProbabilityBits | std::uint32_t{shift_code} << 28};
  };
  if (frequency == 1) {
    return pack(UINT32_MAX, 15);
  }
  const auto log2 = static_cast<unsigned>(std::bit_width(frequency)) - 1;
  if (std::has_single_bit(frequency)) {
    return pack(std::uint64_t{1} << 31, log2 - 1);
  }
  const std::uint64_t power = std::uint64_t{1} << (32 + log2);
  const std::uint64_t rest = power % frequency;  // the error of rounding down
  if (log2 == kProbabilityBits - 1 && rest < frequency - rest) {
    return pack(power / frequency, 14);
  }
  return pack(power / frequency + 1, log2);
}

template <typename Symbol>
void fill_slots(std::span<const std::uint16_t> frequencies, std::vector<Symbol>& slots) {
  slots.resize(kProbabilityTotal + sizeof(std::uint32_t) / sizeof(Symbol));
  auto next = slots.begin();
  for (std::size_t symbol = 0; symbol < frequencies.size(); ++symbol) {
    next = std::fill_n(next, frequencies[symbol], static_cast<Symbol>(symbol));
  }
}

}  // namespace

EncodeTable::EncodeTable(ProbabilityTable table) : table_(std::move(table)) {
  const std::span<const std::uint16_t> frequencies = table_.frequencies();
  const auto push = [&](std::uint32_t frequency, std::uint32_t start) {
    entries_.push_back(exact_entry(frequency, start));
    lane_entries_.push_back(lane_entry(frequency, start));
  };
  const std::uint32_t escape_frequency = frequencies.back();
  std::uint32_t start = 0;
  for (const std::uint16_t frequency : frequencies) {
    if (frequency > 0) {
      push(frequency, start);
    } else {
      push(escape_frequency, kProbabilityTotal - escape_frequency);
    }
    start += frequency;
  }
  costs_q8_ = table_.costs_q8();
}

DecodeTable::DecodeTable(ProbabilityTable table) : table_(std::move(table)) {
  std::uint32_t start = 0;
  for (const std::uint16_t frequency : table_.frequencies()) {
    // A symbol without slots is never looked up, and its start may not fit.
    entries_.push_back(frequency > 0 ? frequency | start << 16 : 0U);
    start += frequency;
  }
  for (unsigned symbol = 0; symbol < entries_.size(); ++symbol) {
    ranges_.push_back({table_.alphabet().first_of(symbol), table_.alphabet().bits_of(symbol)});
  }
  if (has_byte_symbols()) {
    fill_slots(table_.frequencies(), byte_slots_);
  } else {
    fill_slots(table_.frequencies(), word_slots_);
  }
}

// ------------------------------------------------------------------ kernels

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
