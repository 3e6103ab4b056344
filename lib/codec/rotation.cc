// SPDX-License-Identifier: Apache-2.0
#include "codec/rotation.h"

#include <cmath>

#include "base/check.h"
#include "base/random.h"

namespace spillway::codec {
namespace {

// Separates sign streams from all other draws under the same key.
constexpr std::uint32_t kSignDomain = 0x5349474EU;  // "SIGN"
constexpr std::uint32_t kBlocksAtOnce = 4;

}  // namespace

// Draws several blocks side by side, so that the compiler can keep them in vector lanes.
void draw_signs(RotationId id, unsigned round, unsigned log2_length, SignWords& words) {
  const std::uint32_t blocks = (1U << log2_length) / 128;
  for (std::uint32_t first = 0; first < blocks; first += kBlocksAtOnce) {
    base::RandomBlocks<kBlocksAtOnce> counters;
    for (std::uint32_t k = 0; k < kBlocksAtOnce; ++k) {
      counters.word[0][k] = first + k;
      counters.word[1][k] = id.row;
      counters.word[2][k] = round;
      counters.word[3][k] = kSignDomain;
    }
    base::random_blocks(id.key, counters);
    for (std::uint32_t k = 0; k < kBlocksAtOnce && first + k < blocks; ++k) {
      for (std::size_t word = 0; word < 4; ++word) {
        words[(first + k) * 4 + word] = counters.word[word][k];
      }
    }
  }
}

void rotate_row(const Kernels& kernels, RotationId id, unsigned first_round, unsigned rounds,
                unsigned log2_length, float* row) {
  SPILLWAY_CHECK(log2_length >= kMinRowLog2 && log2_length <= kMaxRowLog2);
  SignWords words;
  for (unsigned round = first_round; round < first_round + rounds; ++round) {
    draw_signs(id, round, log2_length, words);
    kernels.rotate(row, log2_length, words.data());
  }
}

RowMoments rotate_first(const Kernels& kernels, RotationId id, unsigned log2_length,
                        const float* source, float* row) {
  SPILLWAY_CHECK(log2_length >= kMinRowLog2 && log2_length <= kMaxRowLog2);
  SignWords words;
  draw_signs(id, 0, log2_length, words);
  return kernels.measure_and_rotate(source, row, log2_length, words.data());
}

void unrotate_row(const Kernels& kernels, RotationId id, unsigned rounds, unsigned log2_length,
                  float factor, float* row) {
  SPILLWAY_CHECK(log2_length >= kMinRowLog2 && log2_length <= kMaxRowLog2);
  const float normalised = unrotation_step(log2_length, 1.0F);
  SignWords words;
  for (unsigned round = rounds; round-- > 0;) {
    const float step = round == 0 ? unrotation_step(log2_length, factor) : normalised;
    draw_signs(id, round, log2_length, words);
    kernels.unrotate(row, log2_length, words.data(), step);
  }
}

float unrotation_step(unsigned log2_length, float factor) {
  return static_cast<float>(1.0 / rotation_gain(log2_length, 1) * factor);
}

double rotation_gain(unsigned log2_length, unsigned rounds) {
  return std::sqrt(std::ldexp(1.0, static_cast<int>(log2_length * rounds)));
}

}  // namespace spillway::codec
