// SPDX-License-Identifier: Apache-2.0
//
// Codes without a probability model, cheap to compute: what entropy coding has to be better than.
//
// packed: blocks of kPackedBlock values; a byte says how many bits the largest folded value of the
// block needs (codec/entropy/alphabet.h), then all of them in that many.
//
// dual-length (after arXiv 2602.17849): the eight commonest folded values of what was learned take
// a 0 and three bits; others a 1 and as many bits as the message's largest needs, which its first
// byte says. Before anything is learned the eight smallest folded values are the short ones.
#pragma once

#include <array>
#include <cstddef>

#include "codec/reference/integer_coder.h"

namespace spillway::codec::reference {

inline constexpr std::size_t kPackedBlock = 256;

class PackedCoder : public IntegerCoder {
 public:
  std::string_view name() const override { return "packed"; }
  std::vector<std::uint8_t> encode(std::span<const std::int32_t> values) override;
  base::Status decode(base::ByteView bytes, std::span<std::int32_t> values) override;
};

class DualLengthCoder : public IntegerCoder {
 public:
  std::string_view name() const override { return "dual-length"; }
  void learn(std::span<const std::int32_t> values) override;
  std::vector<std::uint8_t> encode(std::span<const std::int32_t> values) override;
  base::Status decode(base::ByteView bytes, std::span<std::int32_t> values) override;

 private:
  std::array<std::uint32_t, 8> short_ = {0, 1, 2, 3, 4, 5, 6, 7};
};

}  // namespace spillway::codec::reference
