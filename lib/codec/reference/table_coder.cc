// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/table_coder.h"

#include <algorithm>
#include <cstdlib>

namespace spillway::codec::reference {

entropy::Alphabet alphabet_for(std::span<const std::int32_t> values) {
  const bool is_narrow = std::all_of(
      values.begin(), values.end(), [](std::int32_t value) { return value > -128 && value < 128; });
  return is_narrow ? entropy::Alphabet::bytes() : entropy::Alphabet::ranges();
}

std::string_view TableCoder::name() const {
  switch (source_) {
    case TableSource::kLastStep:
      return "asc";
    case TableSource::kAllSteps:
      return "one-table";
    case TableSource::kInline:
      return "inline";
    case TableSource::kParametric:
      break;
  }
  return "parametric";
}

entropy::ProbabilityTable TableCoder::learned(std::span<const std::int32_t> values) {
  if (source_ == TableSource::kParametric) {
    std::uint64_t sum = 0;
    for (const std::int32_t value : values) {
      sum += static_cast<std::uint64_t>(std::abs(static_cast<std::int64_t>(value)));
    }
    const std::uint64_t mean_q8 = sum * 256 / std::max<std::size_t>(values.size(), 1);
    return entropy::ProbabilityTable::laplace(alphabet_for(values),
                                              static_cast<std::uint32_t>(mean_q8));
  }
  // One table for all steps must suit the widest of them.
  const entropy::Alphabet alphabet =
      source_ == TableSource::kAllSteps ? entropy::Alphabet::ranges() : alphabet_for(values);
  if (!seen_ || source_ != TableSource::kAllSteps) {
    seen_.emplace(alphabet);
  }
  seen_->add(values);
  return entropy::ProbabilityTable::of_counts(*seen_);
}

void TableCoder::learn(std::span<const std::int32_t> values) {
  if (source_ != TableSource::kInline) {
    const entropy::ProbabilityTable table = learned(values);
    encode_table_.emplace(table);
    decode_table_.emplace(table);
  }
}

std::vector<std::uint8_t> TableCoder::encode(std::span<const std::int32_t> values) {
  std::vector<std::uint8_t> bytes(entropy::max_block_bytes(values.size()));
  const auto block = encode_table_ ? encoder_.encode(values, *encode_table_, bytes)
                                   : encoder_.encode_inline(values, alphabet_for(values), bytes);
  SPILLWAY_CHECK(block.ok());
  bytes.resize(block->bytes);
  return bytes;
}

base::Status TableCoder::decode(base::ByteView bytes, std::span<std::int32_t> values) {
  return decoder_.decode(bytes, decode_table_ ? &*decode_table_ : nullptr, values);
}

}  // namespace spillway::codec::reference
