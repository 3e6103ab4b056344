// SPDX-License-Identifier: Apache-2.0
//
// Codes without a probability model, cheap to compute: the baseline for entropy coding.
//
// packed: blocks of kPackedBlock values. A byte gives the width of the block's largest folded value
// (codec/entropy/alphabet.h), and all values follow in that width.
//
// dual-length (after arXiv 2602.17849): the eight commonest folded values learned take a 0 and
// three bits. Others take a 1 and the width of the message's largest value, which its first byte
// gives. Before anything is learned the eight smallest folded values are the short ones.
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
