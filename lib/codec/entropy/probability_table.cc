// SPDX-License-Identifier: Apache-2.0
#include "codec/entropy/probability_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <queue>
#include <utility>

#include "codec/entropy/alphabet.h"

namespace spillway::codec::entropy {
namespace {

constexpr unsigned kWidthBits = 4;  // width of a frequency: 0 .. 14
// A width that no frequency has marks a run of at least kShortestRun symbols with frequency 0.
constexpr std::uint32_t kRunMark = 15;
constexpr std::size_t kShortestRun = 3;
constexpr unsigned kRunBits = 5;
constexpr std::size_t kLongestRun = kShortestRun + (std::size_t{1} << kRunBits) - 1;

std::uint32_t hash_of(const Alphabet& alphabet, std::span<const std::uint16_t> frequencies) {
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325U;  // FNV-1a
  const auto take = [&](std::uint32_t word) {
    hash = (hash ^ (word & 0xFFU)) * 0x100'0000'01B3U;
    hash = (hash ^ (word >> 8)) * 0x100'0000'01B3U;
  };
  take(static_cast<std::uint32_t>(alphabet.kind()));
  take(alphabet.symbols());
  std::for_each(frequencies.begin(), frequencies.end(), take);
  const auto folded = static_cast<std::uint32_t>(hash ^ hash >> 32);
  return folded == 0 ? 1 : folded;  // 0 means no table
}

// A symbol's count and its present frequency in the table.
struct Share {
  std::uint64_t count;
  std::uint32_t frequency;
  std::size_t symbol;

  // Compares the bits saved by one more unit: count * log2(1 + 1/f), ordered by count / (2f + 1).
  bool gains_more_than(const Share& other) const {
    const std::uint64_t mine = count * (2 * other.frequency + 1);
    const std::uint64_t its = other.count * (2 * frequency + 1);
    return mine != its ? mine > its : symbol < other.symbol;
  }
  // Compares the bits lost with one unit less, ordered by count / (2f - 1).
  bool loses_less_than(const Share& other) const {
    const std::uint64_t mine = count * (2 * other.frequency - 1);
    const std::uint64_t its = other.count * (2 * frequency - 1);
    return mine != its ? mine < its : symbol < other.symbol;
  }
};

// Changes frequencies one unit at a time, the best first, until they sum to 2^14.
void settle(std::vector<Share> shares, std::int64_t missing,
            std::vector<std::uint16_t>& frequencies) {
  const bool gives = missing > 0;
  const auto is_worse = [gives](const Share& left, const Share& right) {
    return gives ? right.gains_more_than(left) : right.loses_less_than(left);
  };
  if (!gives) {
    std::erase_if(shares, [](const Share& share) { return share.frequency < 2; });
  }
  std::priority_queue queue(is_worse, std::move(shares));
  for (; missing != 0; missing += gives ? -1 : 1) {
    Share best = queue.top();
    queue.pop();
    best.frequency += gives ? 1U : 0U - 1U;
    frequencies[best.symbol] = static_cast<std::uint16_t>(best.frequency);
    if (gives || best.frequency > 1) {
      queue.push(best);
    }
  }
}

// True if a symbol is so rare that escaping it is cheaper than a unit of the table, which costs all
// others 1.44 * total / 2^14 bits.
bool is_worth_escaping(std::uint64_t count, std::uint64_t total) {
  return count * kEscapeBits * kProbabilityTotal * 2 < total * 3;
}

// Counts with rare symbols moved to the escape, which gets at least 1.
std::vector<std::uint64_t> counts_to_code(const Histogram& histogram) {
  std::vector<std::uint64_t> counts(histogram.counts().begin(), histogram.counts().end());
  std::uint64_t& escape = counts.back();
  for (std::size_t symbol = 0; symbol + 1 < counts.size(); ++symbol) {
    if (is_worth_escaping(counts[symbol], histogram.total())) {
      escape += std::exchange(counts[symbol], 0);
    }
  }
  if (histogram.total() == 0) {
    counts.front() = kProbabilityTotal;
  } else if (histogram.total() == escape) {
    counts.front() = 1;  // the escape must not have everything
  }
  escape = std::max<std::uint64_t>(escape, 1);
  return counts;
}

// log2(frequency) in 1/256: the integer part, then one squaring for each fraction bit.
std::uint32_t log2_q8(std::uint32_t frequency) {
  const auto integer = static_cast<std::uint32_t>(std::bit_width(frequency)) - 1;
  std::uint64_t mantissa = std::uint64_t{frequency} << (31 - integer);  // 2^31 .. 2^32
  std::uint32_t log2 = integer;
  for (int bit = 0; bit < 8; ++bit) {
    mantissa = mantissa * mantissa >> 31;
    const bool is_two_or_more = mantissa >> 32 != 0;
    log2 = log2 << 1 | static_cast<std::uint32_t>(is_two_or_more);
    mantissa >>= is_two_or_more ? 1 : 0;
  }
  return log2;
}

base::Status bad_table(const char* what) {
  return {base::StatusCode::kMalformed,
          fmt::format("a probability table {}: request it again", what)};
}

// Reads frequencies as serialise() wrote them; returns fewer than `symbols` if they are malformed.
std::vector<std::uint16_t> read_frequencies(BitReader& bits, std::size_t symbols) {
  std::vector<std::uint16_t> frequencies;
  frequencies.reserve(symbols);
  while (frequencies.size() < symbols) {
    const std::uint32_t width = bits.get(kWidthBits);
    if (width == kRunMark) {
      const std::size_t run = kShortestRun + bits.get(kRunBits);
      if (run > symbols - frequencies.size()) {
        break;
      }
      frequencies.resize(frequencies.size() + run, 0);
      continue;
    }
    const std::uint32_t frequency = width == 0 ? 0 : 1U << (width - 1) | bits.get(width - 1);
    frequencies.push_back(static_cast<std::uint16_t>(frequency));
  }
  return frequencies;
}

void write_frequencies(std::span<const std::uint16_t> frequencies, BitWriter& bits) {
  for (std::size_t i = 0; i < frequencies.size();) {
    const auto rest = frequencies.subspan(i);
    const auto run = std::min<std::size_t>(
        static_cast<std::size_t>(
            std::find_if(rest.begin(), rest.end(), [](auto f) { return f != 0; }) - rest.begin()),
        kLongestRun);
    if (run >= kShortestRun) {
      bits.put(kRunMark, kWidthBits);
      bits.put(static_cast<std::uint32_t>(run - kShortestRun), kRunBits);
      i += run;
      continue;
    }
    const auto width = static_cast<unsigned>(std::bit_width(frequencies[i]));
    bits.put(width, kWidthBits);
    if (width > 1) {
      bits.put(frequencies[i] & ((1U << (width - 1)) - 1), width - 1);
    }
    ++i;
  }
}

}  // namespace

ProbabilityTable::ProbabilityTable(Alphabet alphabet, std::vector<std::uint16_t> frequencies)
    : alphabet_(alphabet),
      frequencies_(std::move(frequencies)),
      hash_(hash_of(alphabet_, frequencies_)) {}

ProbabilityTable ProbabilityTable::of_counts(const Histogram& histogram) {
  const std::vector<std::uint64_t> counts = counts_to_code(histogram);
  std::uint64_t total = 0;
  for (const std::uint64_t count : counts) {
    total += count;
  }
  std::vector<std::uint16_t> frequencies(counts.size());
  std::vector<Share> shares;
  std::int64_t missing = kProbabilityTotal;
  for (std::size_t symbol = 0; symbol < counts.size(); ++symbol) {
    if (counts[symbol] == 0) {
      continue;
    }
    const std::uint64_t exact = counts[symbol] * kProbabilityTotal / total;
    const auto frequency = static_cast<std::uint32_t>(std::max<std::uint64_t>(exact, 1));
    frequencies[symbol] = static_cast<std::uint16_t>(frequency);
    shares.push_back({counts[symbol], frequency, symbol});
    missing -= frequency;
  }
  settle(std::move(shares), missing, frequencies);
  return {histogram.alphabet(), std::move(frequencies)};
}

base::Result<ProbabilityTable> ProbabilityTable::parse(base::ByteReader& reader) {
  const auto kind = reader.read<std::uint8_t>();
  const auto symbols = reader.read<std::uint16_t>();
  const auto bytes = reader.read<std::uint16_t>();
  const base::ByteView coded = reader.take(bytes);
  if (!reader.ok()) {
    return bad_table("is truncated");
  }
  base::Result<Alphabet> alphabet = Alphabet::of(kind, symbols);
  if (!alphabet.ok()) {
    return alphabet.status();
  }
  BitReader bits(coded);
  std::vector<std::uint16_t> frequencies = read_frequencies(bits, symbols);
  if (frequencies.size() != symbols || !bits.is_at_end()) {
    return bad_table("is not as long as its header says");
  }
  std::uint64_t total = 0;
  for (const std::uint16_t frequency : frequencies) {
    total += frequency;
  }
  const std::uint16_t largest = *std::max_element(frequencies.begin(), frequencies.end());
  if (total != kProbabilityTotal || frequencies.back() == 0 || largest == kProbabilityTotal) {
    return bad_table("does not sum to 2^14, or leaves no room for escapes");
  }
  return ProbabilityTable(*alphabet, std::move(frequencies));
}

void ProbabilityTable::serialise(base::ByteWriter& writer) const {
  std::vector<std::uint8_t> coded(kMaxTableBytes + kBitSlack);
  BitWriter bits(coded.data());
  write_frequencies(frequencies_, bits);
  writer.write(static_cast<std::uint8_t>(alphabet_.kind()));
  writer.write(static_cast<std::uint16_t>(alphabet_.symbols()));
  writer.write(static_cast<std::uint16_t>(bits.bytes()));
  writer.append({coded.data(), bits.bytes()});
}

std::vector<std::uint32_t> ProbabilityTable::costs_q8() const {
  const auto bits_of_frequency = [](std::uint16_t frequency) {
    return kProbabilityBits * 256 - log2_q8(frequency);
  };
  const std::uint32_t escape = bits_of_frequency(frequencies_.back()) + kEscapeBits * 256;
  std::vector<std::uint32_t> costs;
  for (unsigned symbol = 0; symbol < frequencies_.size(); ++symbol) {
    const std::uint16_t frequency = frequencies_[symbol];
    costs.push_back(frequency > 0 ? bits_of_frequency(frequency) + alphabet_.bits_of(symbol) * 256
                                  : escape);
  }
  return costs;
}

std::uint64_t ProbabilityTable::cost_q8(const Histogram& histogram) const {
  SPILLWAY_CHECK(histogram.alphabet() == alphabet_);
  const std::vector<std::uint32_t> costs = costs_q8();
  std::uint64_t cost = 0;
  for (std::size_t symbol = 0; symbol < costs.size(); ++symbol) {
    cost += std::uint64_t{histogram.counts()[symbol]} * costs[symbol];
  }
  return cost;
}

// ------------------------------------------------------------------ tables from one number
//
// Fixed-point masses of a Laplace or normal distribution are counted into a histogram, which
// becomes a table like any other.

namespace {

constexpr std::uint64_t kLog2E = 94'548;  // log2(e) in 1/65536
constexpr unsigned kMassBits = 30;

constexpr std::uint64_t square_root(std::uint64_t square) {
  std::uint64_t root = 0;
  for (std::uint64_t bit = std::uint64_t{1} << 31; bit != 0; bit >>= 1) {
    if ((root | bit) * (root | bit) <= square) {
      root |= bit;
    }
  }
  return root;
}

// 2^(-1/2), 2^(-1/4), ... in units of 2^-31.
constexpr std::array<std::uint64_t, 16> kRoots = [] {
  std::array<std::uint64_t, 16> roots{};
  std::uint64_t last = std::uint64_t{1} << 30;
  for (std::uint64_t& root : roots) {
    root = square_root(last << 31);
    last = root;
  }
  return roots;
}();

// 2^-x in units of 2^-kMassBits, x in 1/65536.
std::uint64_t exp2_minus(std::uint64_t x) {
  if (x >> 16 > kMassBits) {
    return 0;
  }
  std::uint64_t power = std::uint64_t{1} << 31;
  for (unsigned bit = 0; bit < kRoots.size(); ++bit) {
    if ((x >> (15 - bit) & 1U) != 0) {
      power = power * kRoots[bit] >> 31;
    }
  }
  return power >> (31 - kMassBits) >> (x >> 16);
}

// exp(-m / scale); all magnitudes m are in halves of a unit.
std::uint64_t laplace_tail(std::uint64_t halves, std::uint32_t scale_q8) {
  return exp2_minus(halves * 128 * kLog2E / scale_q8);
}

// exp(-m^2 / (2 scale^2)).
std::uint64_t gauss_density(std::uint64_t halves, std::uint32_t scale_q8) {
  const std::uint64_t ratio = halves * 128 * 4096 / scale_q8;  // in 1/4096
  if (ratio > 64 * 4096) {
    return 0;
  }
  return exp2_minus((ratio * ratio >> 8) * kLog2E / 2 >> 16);
}

// The mass of folded values first .. first + count - 1. Positive values 2m and negative ones 2m - 1
// alternate; each has the mass of [m - 1/2, m + 1/2] on its side of zero.
std::uint64_t laplace_mass(std::uint64_t first, std::uint64_t count, std::uint32_t scale_q8) {
  const auto tail = [&](std::uint64_t halves) { return laplace_tail(halves, scale_q8); };
  if (first == 0) {
    return 2 * (tail(0) - tail(1));
  }
  if (count == 1) {
    const std::uint64_t halves = (first + 1) / 2 * 2;
    return tail(halves - 1) - tail(halves + 1);
  }
  return tail(first - 1) - tail(first + count - 1) + tail(first + 1) - tail(first + count + 1);
}

// The same for a normal distribution, up to a constant factor, by Simpson's rule over the range.
std::uint64_t gauss_mass(std::uint64_t first, std::uint64_t count, std::uint32_t scale_q8) {
  const auto density = [&](std::uint64_t halves) { return gauss_density(halves, scale_q8); };
  if (first == 0) {
    return (4 * density(0) + 2 * density(1)) / 6;
  }
  const std::uint64_t middle = count == 1 ? (first + 1) / 2 * 2 : first + count / 2;
  const std::uint64_t half_width = std::max<std::uint64_t>(count / 2, 1);
  const std::uint64_t mean =
      (density(middle - half_width) + 4 * density(middle) + density(middle + half_width)) / 6;
  return mean * count;
}

using Mass = std::uint64_t (*)(std::uint64_t first, std::uint64_t count, std::uint32_t scale_q8);

Histogram expected_counts(const Alphabet& alphabet, Mass mass, std::uint32_t scale_q8) {
  std::array<std::uint64_t, kMaxSymbols> masses{};
  std::uint64_t total = 0;
  for (unsigned symbol = 0; symbol < alphabet.escape(); ++symbol) {
    const std::uint64_t count = std::uint64_t{1} << alphabet.bits_of(symbol);
    masses[symbol] = mass(alphabet.first_of(symbol), count, std::max(scale_q8, 1U));
    total += masses[symbol];
  }
  const int excess =
      std::max(static_cast<int>(std::bit_width(total)) - static_cast<int>(kMassBits), 0);
  Histogram counts(alphabet);
  for (unsigned symbol = 0; symbol < alphabet.escape(); ++symbol) {
    counts.add_symbol(symbol, masses[symbol] >> excess);
  }
  return counts;
}

}  // namespace

ProbabilityTable ProbabilityTable::laplace(Alphabet alphabet, std::uint32_t scale_q8) {
  return of_counts(expected_counts(alphabet, laplace_mass, scale_q8));
}

ProbabilityTable ProbabilityTable::gauss(Alphabet alphabet, std::uint32_t scale_q8) {
  return of_counts(expected_counts(alphabet, gauss_mass, scale_q8));
}

}  // namespace spillway::codec::entropy
