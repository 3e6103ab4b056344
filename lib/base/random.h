// SPDX-License-Identifier: Apache-2.0
//
// A counter-based random generator: Philox 4x32 with 10 rounds (Salmon et al., SC'11).
//
// The 128 bits at a counter depend only on (key, counter); there is no state. So a sender and a
// receiver with the same key draw the same bits in any order on any machine, and packets can be
// decoded in any order. The output is part of the wire format (it defines the rotation) and must
// never change; the test holds golden values.
//
// Not a cipher: use it for spreading and sampling, never for secrecy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace spillway::base {

using RandomBlock = std::array<std::uint32_t, 4>;

// kCount counters, word by word, for code that draws many blocks; its loops vectorise.
template <std::size_t kCount>
struct RandomBlocks {
  std::array<std::array<std::uint32_t, kCount>, 4> word;
};

// Replaces each counter by its block: random_block() for kCount counters at a time.
template <std::size_t kCount>
constexpr void random_blocks(std::uint64_t key, RandomBlocks<kCount>& blocks) {
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  auto& w = blocks.word;
  for (int round = 0; round < 10; ++round) {
    for (std::size_t k = 0; k < kCount; ++k) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53} * w[0][k];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * w[2][k];
      w[0][k] = static_cast<std::uint32_t>(product1 >> 32) ^ w[1][k] ^ key0;
      w[1][k] = static_cast<std::uint32_t>(product1);
      w[2][k] = static_cast<std::uint32_t>(product0 >> 32) ^ w[3][k] ^ key1;
      w[3][k] = static_cast<std::uint32_t>(product0);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
}

// The four words at `counter` of the stream `key`.
constexpr RandomBlock random_block(std::uint64_t key, RandomBlock counter) {
  RandomBlocks<1> blocks{{{{counter[0]}, {counter[1]}, {counter[2]}, {counter[3]}}}};
  random_blocks(key, blocks);
  return {blocks.word[0][0], blocks.word[1][0], blocks.word[2][0], blocks.word[3][0]};
}

// The key of an independent stream: `parent` with up to 128 bits of identity mixed in.
constexpr std::uint64_t derive_key(std::uint64_t parent, RandomBlock identity) {
  const RandomBlock block = random_block(parent, identity);
  return (std::uint64_t{block[1]} << 32) | block[0];
}

// A uniform draw from [0, 1) with 24 bits, which a float holds exactly.
constexpr float uniform_float(std::uint32_t word) {
  return static_cast<float>(word >> 8) * (1.0F / 16777216.0F);
}

// Sequential draws from one stream (tests, samplers, simulations). One thread; a copy continues
// from the same place.
class RandomSequence {
 public:
  explicit RandomSequence(std::uint64_t key) : key_(key) {}

  std::uint32_t next_word();
  std::uint64_t next_below(std::uint64_t bound);  // uniform in [0, bound); bound > 0
  double next_unit();                             // uniform in [0, 1) with 53 bits
  double next_gaussian();                         // standard normal (Box-Muller)

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
  RandomBlock block_{};
  unsigned used_words_ = 4;
};

}  // namespace spillway::base
