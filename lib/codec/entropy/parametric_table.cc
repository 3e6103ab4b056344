// SPDX-License-Identifier: Apache-2.0
//
// Tables from one number: fixed-point masses of a Laplace or normal distribution, counted into a
// histogram that becomes a table like any other.
#include <algorithm>
#include <array>
#include <bit>

#include "codec/entropy/probability_table.h"

namespace spillway::codec::entropy {
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
