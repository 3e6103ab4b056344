// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/subtractive_dithering.h"

#include "codec/reference/coordinate_draws.h"
#include "codec/reference/saturated.h"
#include "codec/reference/spread.h"

namespace spillway::codec::reference {
namespace {

constexpr std::uint32_t kDitherDomain = 0x54525344U;  // "TRSD"

// The dither of a coordinate, in [-limit, limit): the same at both ends.
double dither(CoordinateDraws& draws, std::size_t coordinate, float limit) {
  return (2.0 * draws.unit(coordinate) - 1.0) * limit;
}

}  // namespace

TrimmableEncoding::Coded SubtractiveDithering::to_words(std::span<const float> tensor,
                                                        std::uint64_t seed) const {
  const float limit = clipping_limit(tensor);
  Coded coded{{}, {limit}};
  coded.words.reserve(tensor.size());
  CoordinateDraws draws(seed, kDitherDomain);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    // Clipping would change no head: beyond the limit the dither never turns the sign.
    const std::uint32_t head = tensor[i] + dither(draws, i, limit) >= 0.0 ? 1 : 0;
    coded.words.push_back(head << kTailBits | shortened(tensor[i]));
  }
  return coded;
}

void SubtractiveDithering::from_words(const Received& received, std::span<const float> metadata,
                                      std::uint64_t seed, std::span<float> out) const {
  const float limit = metadata[0];
  CoordinateDraws draws(seed, kDitherDomain);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint32_t word = received.words[i];
    if (received.fates[i] == PacketFate::kTrimmed) {
      const double level = word != 0 ? limit : -limit;
      out[i] = saturated(level - dither(draws, i, limit));
    } else {
      out[i] = lengthened(word);  // shifts the head out; a lost word is zero
    }
  }
}

}  // namespace spillway::codec::reference
