// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch/support.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "base/bytes.h"

namespace spillway::codec::sketch {
namespace {

constexpr std::uint64_t kAllBits = ~std::uint64_t{0};

// The bits of up to 64 values. Flags are bytes first, so that comparisons vectorise. A product then
// moves the lowest bits of eight bytes next to each other.
std::uint64_t nonzero_bits(std::span<const std::int32_t> values) {
  constexpr std::uint64_t kGatherLowestBits = 0x0102040810204080U;
  std::array<std::uint8_t, kWordBits> flags{};
  if (values.size() == kWordBits) {
    for (std::size_t i = 0; i < kWordBits; ++i) {
      flags[i] = values[i] != 0;
    }
  } else {
    std::transform(values.begin(), values.end(), flags.begin(),
                   [](std::int32_t value) { return value != 0; });
  }
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < kWordBits; i += 8) {
    bits |= (base::load_le<std::uint64_t>(&flags[i]) * kGatherLowestBits >> 56) << i;
  }
  return bits;
}

}  // namespace

Support Support::all(std::size_t length) {
  Support support(length);
  for (std::size_t word = 0; word < support.words_.size(); ++word) {
    support.words_[word] = support.valid_bits(word);
  }
  return support;
}

Support Support::of_nonzero(std::span<const std::int32_t> values) {
  Support support(values.size());
  for (std::size_t word = 0; word < support.words_.size(); ++word) {
    const std::size_t begin = word * kWordBits;
    support.words_[word] =
        nonzero_bits(values.subspan(begin, std::min(kWordBits, values.size() - begin)));
  }
  return support;
}

std::uint64_t Support::valid_bits(std::size_t word) const {
  const std::size_t left = length_ - word * kWordBits;
  return left >= kWordBits ? kAllBits : (std::uint64_t{1} << left) - 1;
}

std::size_t Support::count() const {
  return std::transform_reduce(
      words_.begin(), words_.end(), std::size_t{0}, std::plus<>(),
      [](std::uint64_t word) { return static_cast<std::size_t>(std::popcount(word)); });
}

Support& Support::operator|=(const Support& other) {
  SPILLWAY_CHECK(length_ == other.length_);
  for (std::size_t word = 0; word < words_.size(); ++word) {
    words_[word] |= other.words_[word];
  }
  return *this;
}

Support Support::without(const Support& other) const {
  SPILLWAY_CHECK(length_ == other.length_);
  Support left = *this;
  for (std::size_t word = 0; word < words_.size(); ++word) {
    left.words_[word] &= ~other.words_[word];
  }
  return left;
}

bool Support::meets(const Support& other) const {
  SPILLWAY_CHECK(length_ == other.length_);
  return std::inner_product(words_.begin(), words_.end(), other.words_.begin(), std::uint64_t{0},
                            std::bit_or<>(), std::bit_and<>()) != 0;
}

void gather(const Support& support, std::span<const std::int32_t> values,
            std::span<std::int32_t> dense) {
  SPILLWAY_CHECK(values.size() == support.length() && dense.size() == support.count());
  const auto words = support.words();
  std::int32_t* to = dense.data();
  for (std::size_t word = 0; word < words.size(); ++word) {
    const std::int32_t* from = values.data() + word * kWordBits;
    if (words[word] == kAllBits) {
      to = std::copy_n(from, kWordBits, to);
      continue;
    }
    for (std::uint64_t left = words[word]; left != 0; left &= left - 1) {
      *to++ = from[std::countr_zero(left)];
    }
  }
}

void scatter(const Support& support, std::span<const std::int32_t> dense,
             std::span<std::int32_t> values) {
  SPILLWAY_CHECK(values.size() == support.length() && dense.size() == support.count());
  const auto words = support.words();
  const std::int32_t* from = dense.data();
  for (std::size_t word = 0; word < words.size(); ++word) {
    std::int32_t* to = values.data() + word * kWordBits;
    if (words[word] == kAllBits) {
      std::copy_n(from, kWordBits, to);
      from += kWordBits;
      continue;
    }
    for (std::uint64_t left = words[word]; left != 0; left &= left - 1) {
      to[std::countr_zero(left)] = *from++;
    }
  }
}

}  // namespace spillway::codec::sketch
