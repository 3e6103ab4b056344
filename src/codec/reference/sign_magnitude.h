// SPDX-License-Identifier: Apache-2.0
//
// Trimmable encoding "sign-magnitude" (HotNets'24): the head is the sign bit of the IEEE float (1
// is negative), the tail its other 31 bits. Trimmed packets decode to sign * sigma, sigma the
// standard deviation of the tensor, the one metadata value.
//
// Whole packets are exact to the bit, NaN payloads included. Trimmed ones are biased: on Gaussian
// data their squared error is 0.404 of the energy (mean |x| in place of sigma would be optimal), on
// heavy tails it passes 1, where zeros would be better.
//
// Edges: a constant tensor has sigma 0, so its trimmed packets decode to zero; with a NaN or an
// infinity anywhere in the tensor sigma is NaN and so is every trimmed coordinate. Denormals are
// like other numbers. The seed is not used. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "codec/reference/trimmable.h"

namespace spillway::codec::reference {

class SignMagnitude final : public TrimmableEncoding {
 public:
  explicit SignMagnitude(std::size_t coordinates_per_packet)
      : TrimmableEncoding(coordinates_per_packet) {}

  std::string_view name() const override { return "sign-magnitude"; }

 private:
  std::size_t word_count(std::size_t count) const override { return count; }
  std::size_t metadata_count(std::size_t /*count*/) const override { return 1; }
  Coded to_words(std::span<const float> tensor, std::uint64_t seed) const override;
  void from_words(const Received& received, std::span<const float> metadata, std::uint64_t seed,
                  std::span<float> out) const override;
};

}  // namespace spillway::codec::reference
