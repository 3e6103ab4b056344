// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/sign_magnitude.h"

#include <bit>

#include "codec/reference/spread.h"

namespace spillway::codec::reference {

TrimmableEncoding::Coded SignMagnitude::to_words(std::span<const float> tensor,
                                                 std::uint64_t /*seed*/) const {
  Coded coded{{}, {standard_deviation(tensor)}};
  coded.words.reserve(tensor.size());
  for (const float value : tensor) {
    coded.words.push_back(std::bit_cast<std::uint32_t>(value));
  }
  return coded;
}

void SignMagnitude::from_words(const Received& received, std::span<const float> metadata,
                               std::uint64_t /*seed*/, std::span<float> out) const {
  const float sigma = metadata[0];
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint32_t word = received.words[i];
    if (received.fates[i] == PacketFate::kTrimmed) {
      out[i] = word != 0 ? -sigma : sigma;
    } else {
      out[i] = std::bit_cast<float>(word);  // a lost word is zero
    }
  }
}

}  // namespace spillway::codec::reference
