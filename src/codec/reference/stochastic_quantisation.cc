// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/stochastic_quantisation.h"

#include <algorithm>
#include <cmath>

#include "codec/reference/coordinate_draws.h"
#include "codec/reference/spread.h"

namespace spillway::codec::reference {
namespace {

constexpr std::uint32_t kHeadDomain = 0x54525351U;  // "TRSQ"

// P(head = 1). Without a usable limit the head says nothing, and decodes to zero or NaN.
double head_probability(float value, float limit) {
  if (!(limit > 0.0F)) {
    return 0.0;
  }
  const double clipped = std::clamp(value, -limit, limit);
  return 0.5 + 0.5 * (clipped / limit);
}

}  // namespace

TrimmableEncoding::Coded StochasticQuantisation::to_words(std::span<const float> tensor,
                                                          std::uint64_t seed) const {
  const float limit = clipping_limit(tensor);
  Coded coded{{}, {limit}};
  coded.words.reserve(tensor.size());
  CoordinateDraws draws(seed, kHeadDomain);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const std::uint32_t head = draws.unit(i) < head_probability(tensor[i], limit) ? 1 : 0;
    coded.words.push_back(head << kTailBits | shortened(tensor[i]));
  }
  return coded;
}

void StochasticQuantisation::from_words(const Received& received, std::span<const float> metadata,
                                        std::uint64_t /*seed*/, std::span<float> out) const {
  const float limit = metadata[0];
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint32_t word = received.words[i];
    if (received.fates[i] == PacketFate::kTrimmed) {
      out[i] = word != 0 ? limit : -limit;
    } else {
      out[i] = lengthened(word);  // shifts the head out; a lost word is zero
    }
  }
}

}  // namespace spillway::codec::reference
