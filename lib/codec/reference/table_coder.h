// SPDX-License-Identifier: Apache-2.0
//
// Spillway's entropy coder as one of the integer coders, for each source of tables. Uses direct
// symbols if all learned values fit 8 bits, else range symbols.
#pragma once

#include <optional>

#include "codec/entropy/block_coder.h"
#include "codec/reference/integer_coder.h"

namespace spillway::codec::reference {

enum class TableSource { kLastStep, kAllSteps, kInline, kParametric };

// The alphabet that suits the learned values.
entropy::Alphabet alphabet_for(std::span<const std::int32_t> values);

class TableCoder : public IntegerCoder {
 public:
  explicit TableCoder(TableSource source) : source_(source) {}

  std::string_view name() const override;
  void learn(std::span<const std::int32_t> values) override;
  std::vector<std::uint8_t> encode(std::span<const std::int32_t> values) override;
  base::Status decode(base::ByteView bytes, std::span<std::int32_t> values) override;

 private:
  entropy::ProbabilityTable learned(std::span<const std::int32_t> values);

  TableSource source_;
  std::optional<entropy::Histogram> seen_;
  std::optional<entropy::EncodeTable> encode_table_;  // both or neither are set
  std::optional<entropy::DecodeTable> decode_table_;
  entropy::BlockEncoder encoder_;
  entropy::BlockDecoder decoder_;
};

}  // namespace spillway::codec::reference
