// SPDX-License-Identifier: Apache-2.0
//
// AES-128 and POLYVAL in portable constant-time code.
#include "wire/section_kernels.h"

#include <algorithm>
#include <array>

#include "base/bytes.h"

namespace spillway::wire {

// ------------------------------------------------------------------ AES-128

namespace {

constexpr unsigned kBits = 8;
constexpr std::size_t kWordBytes = 8;
constexpr std::uint64_t kLowBits = 0x0101010101010101U;    // of the bytes of a word
constexpr std::uint64_t kEachBlock = 0x0001000100010001U;  // the first bit of each block

// [k] holds bit k of every byte: byte i of block b is bit 16 * b + i. SlicedProduct has fifteen
// bits per byte, for products that are not reduced yet.
using Sliced = std::array<std::uint64_t, kBits>;
using SlicedProduct = std::array<std::uint64_t, 2 * kBits - 1>;

// Packs bit k of each byte of a word into eight bits, and back.
std::uint64_t gather_bits(std::uint64_t word, unsigned k) {
  return (((word >> k) & kLowBits) * 0x0102040810204080U) >> 56;
}
std::uint64_t spread_bits(std::uint64_t bits, unsigned k) {
  const std::uint64_t one_per_byte = (bits * kLowBits) & 0x8040201008040201U;
  return (((one_per_byte + 0x7F7F7F7F7F7F7F7FU) >> 7) & kLowBits) << k;
}

void slice_word(const std::uint8_t* bytes, std::size_t at, Sliced& sliced) {
  const auto word = base::load_le<std::uint64_t>(bytes);
  for (unsigned k = 0; k < kBits; ++k) {
    sliced[k] |= gather_bits(word, k) << at;
  }
}

Sliced slice(const AesBlocks& blocks) {
  Sliced sliced{};
  for (std::size_t b = 0; b < kAesSideBySide; ++b) {
    slice_word(blocks[b].data(), b * kAesBlock, sliced);
    slice_word(blocks[b].data() + kWordBytes, b * kAesBlock + kWordBytes, sliced);
  }
  return sliced;
}

void unslice(const Sliced& sliced, AesBlocks& blocks) {
  for (std::size_t at = 0; at < kAesSideBySide * kAesBlock; at += kWordBytes) {
    std::uint64_t word = 0;
    for (unsigned k = 0; k < kBits; ++k) {
      word |= spread_bits((sliced[k] >> at) & 0xFF, k);
    }
    base::store_le(blocks[at / kAesBlock].data() + at % kAesBlock, word);
  }
}

// Modulo x^8 + x^4 + x^3 + x + 1.
Sliced reduced(SlicedProduct product) {
  for (std::size_t k = product.size() - 1; k >= kBits; --k) {
    for (const std::size_t down : {8, 7, 5, 4}) {
      product[k - down] ^= product[k];
    }
  }
  Sliced result;
  std::copy_n(product.begin(), kBits, result.begin());
  return result;
}

Sliced multiplied(const Sliced& a, const Sliced& b) {
  SlicedProduct product{};
  for (std::size_t i = 0; i < kBits; ++i) {
    for (std::size_t j = 0; j < kBits; ++j) {
      product[i + j] ^= a[i] & b[j];
    }
  }
  return reduced(product);
}

Sliced squared(const Sliced& a, unsigned times = 1) {
  Sliced result = a;
  for (unsigned n = 0; n < times; ++n) {
    SlicedProduct product{};
    for (std::size_t i = 0; i < kBits; ++i) {
      product[2 * i] = result[i];
    }
    result = reduced(product);
  }
  return result;
}

// The S-box: the inverse, which is the 254th power, then an affine map.
void substitute(Sliced& state) {
  const Sliced power2 = squared(state);
  const Sliced power3 = multiplied(power2, state);
  const Sliced power12 = squared(power3, 2);
  const Sliced power240 = squared(multiplied(power12, power3), 4);
  const Sliced inverse = multiplied(multiplied(power240, power12), power2);
  constexpr unsigned kAdded = 0x63;
  for (unsigned k = 0; k < kBits; ++k) {
    state[k] = (kAdded >> k & 1) != 0 ? ~std::uint64_t{0} : 0;
    for (const unsigned up : {0, 4, 5, 6, 7}) {
      state[k] ^= inverse[(k + up) % kBits];
    }
  }
}

// Byte 4 * column + row takes its value from `row` columns further on.
void shift_rows(Sliced& state) {
  for (std::uint64_t& bits : state) {
    std::uint64_t shifted = 0;
    for (unsigned row = 0; row < 4; ++row) {
      const std::uint64_t kept = bits & ((0x1111U << row) * kEachBlock);
      const std::uint64_t stay = (0xFFFFU >> (4 * row)) * kEachBlock;  // sources in the same block
      shifted |= ((kept >> (4 * row)) & stay) | ((kept << (16 - 4 * row)) & ~stay);
    }
    bits = shifted;
  }
}

// Replaces each byte by the one `rows` below it in its column.
std::uint64_t from_below(std::uint64_t bits, unsigned rows) {
  const std::uint64_t stay = (0xFU >> rows) * 0x1111U * kEachBlock;
  return ((bits >> rows) & stay) | ((bits << (4 - rows)) & ~stay);
}

// 2 a0 + 3 a1 + a2 + a3 = 2 (a0 + a1) + a1 + (a2 + a3).
void mix_columns(Sliced& state) {
  Sliced sums;
  for (unsigned k = 0; k < kBits; ++k) {
    sums[k] = state[k] ^ from_below(state[k], 1);
  }
  for (unsigned k = 0; k < kBits; ++k) {
    constexpr unsigned kReduction = 0x1B;
    const std::uint64_t carried = (kReduction >> k & 1) != 0 ? sums[kBits - 1] : 0;
    const std::uint64_t doubled = (k > 0 ? sums[k - 1] : 0) ^ carried;
    state[k] = doubled ^ from_below(state[k], 1) ^ from_below(sums[k], 2);
  }
}

void add_key(const AesBlock& key, Sliced& state) {
  Sliced sliced{};
  slice_word(key.data(), 0, sliced);
  slice_word(key.data() + kWordBytes, kWordBytes, sliced);
  for (unsigned k = 0; k < kBits; ++k) {
    state[k] ^= sliced[k] * kEachBlock;
  }
}

// Applies the S-box to the last column of a key and rotates its rows by one.
std::array<std::uint8_t, 4> substituted_column(const AesBlock& key) {
  AesBlocks blocks{};
  std::copy_n(key.begin() + 12, 4, blocks[0].begin());
  Sliced state = slice(blocks);
  substitute(state);
  unslice(state, blocks);
  return {blocks[0][1], blocks[0][2], blocks[0][3], blocks[0][0]};
}

}  // namespace

void expand_aes(const std::uint8_t* key, AesRounds& rounds) {
  std::copy_n(key, kAesBlock, rounds[0].begin());
  unsigned constant = 1;
  for (std::size_t round = 1; round < rounds.size(); ++round) {
    const AesBlock& before = rounds[round - 1];
    AesBlock& after = rounds[round];
    std::array<std::uint8_t, 4> column = substituted_column(before);
    column[0] ^= static_cast<std::uint8_t>(constant);
    for (std::size_t i = 0; i < kAesBlock; ++i) {
      after[i] = before[i] ^ (i < 4 ? column[i] : after[i - 4]);
    }
    constant = (constant << 1) ^ (constant >= 0x80 ? 0x11B : 0);
  }
}

void encrypt_aes(const AesRounds& rounds, AesBlocks& blocks) {
  Sliced state = slice(blocks);
  add_key(rounds[0], state);
  for (std::size_t round = 1; round <= kAesRounds; ++round) {
    substitute(state);
    shift_rows(state);
    if (round < kAesRounds) {
      mix_columns(state);
    }
    add_key(rounds[round], state);
  }
  unslice(state, blocks);
}

// ------------------------------------------------------------------ POLYVAL

namespace {

__extension__ using Wide = unsigned __int128;

// Multiplies every kStride-th bit of 64-bit factors at a time. At most 13 partial products then
// meet at one bit position, and its kStride bits of room can count to 13. So no sum reaches the
// next position, and the lowest bit of each is the sum without carries.
constexpr unsigned kStride = 5;

constexpr Wide every_bit_from(unsigned first) {
  Wide mask = 0;
  for (unsigned bit = first; bit < 128; bit += kStride) {
    mask |= Wide{1} << bit;
  }
  return mask;
}
constexpr std::array<Wide, kStride> kMasks = {
    every_bit_from(0), every_bit_from(1), every_bit_from(2), every_bit_from(3), every_bit_from(4)};

Wide carryless_product(std::uint64_t a, std::uint64_t b) {
  Wide product = 0;
  for (unsigned place = 0; place < kStride; ++place) {
    Wide sum = 0;
    for (unsigned i = 0; i < kStride; ++i) {
      const unsigned j = (place + kStride - i) % kStride;
      sum ^= Wide{a & static_cast<std::uint64_t>(kMasks[i])} *
             (b & static_cast<std::uint64_t>(kMasks[j]));
    }
    product |= sum & kMasks[place];
  }
  return product;
}

std::uint64_t low_half(Wide value) {
  return static_cast<std::uint64_t>(value);
}
std::uint64_t high_half(Wide value) {
  return static_cast<std::uint64_t>(value >> 64);
}

// Divides by x^64: adds the multiple of the modulus that clears the low half, then drops that half.
PolyvalElement divide(PolyvalElement value) {
  const std::uint64_t low = value.low;
  return {value.high ^ (low << 63) ^ (low << 62) ^ (low << 57),
          low ^ (low >> 1) ^ (low >> 2) ^ (low >> 7)};
}

}  // namespace

PolyvalElement polyval_product(PolyvalElement a, PolyvalElement b) {
  const Wide low = carryless_product(a.low, b.low);
  const Wide high = carryless_product(a.high, b.high);
  const Wide middle = carryless_product(a.low ^ a.high, b.low ^ b.high) ^ low ^ high;
  const PolyvalElement lower = {low_half(low), high_half(low) ^ low_half(middle)};
  const PolyvalElement upper = {low_half(high) ^ high_half(middle), high_half(high)};
  return upper ^ divide(divide(lower));
}

}  // namespace spillway::wire
