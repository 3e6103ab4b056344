// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/rotated_sign.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "codec/kernels.h"
#include "codec/reference/reference_rows.h"
#include "codec/rotation.h"

namespace spillway::codec::reference {
namespace {

// y = H D x / sqrt(n) in place of the zero-padded row x; returns f, or NaN if y is not finite.
float rotate_to_unit_gain(RotationId id, unsigned log2_length, std::span<float> row) {
  double energy = 0.0;
  for (const float value : row) {
    energy += static_cast<double>(value) * value;
  }
  rotate_row(best_kernels(), id, 0, 1, log2_length, row.data());
  const auto normalise = static_cast<float>(1.0 / rotation_gain(log2_length, 1));
  double absolute_sum = 0.0;
  for (float& value : row) {
    value *= normalise;
    absolute_sum += std::fabs(value);
  }
  if (!std::isfinite(absolute_sum)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return absolute_sum > 0.0 ? static_cast<float>(energy / absolute_sum) : 0.0F;
}

float rotated_value(std::uint32_t word, PacketFate fate, float scale) {
  if (fate == PacketFate::kTrimmed) {
    return word != 0 ? -scale : scale;
  }
  return std::bit_cast<float>(word);  // a lost word is zero
}

}  // namespace

std::size_t RotatedSign::word_count(std::size_t count) const {
  return padded_length(reference_rows(count));
}

std::size_t RotatedSign::metadata_count(std::size_t count) const {
  return reference_rows(count).row_count();
}

TrimmableEncoding::Coded RotatedSign::to_words(std::span<const float> tensor,
                                               std::uint64_t seed) const {
  const RowLayout rows = reference_rows(tensor.size());
  Coded coded;
  coded.words.reserve(padded_length(rows));
  std::vector<float> scratch;
  for (std::size_t i = 0; i < rows.row_count(); ++i) {
    const Row row = rows.row(i);
    scratch.assign(row.length(), 0.0F);
    std::copy_n(tensor.begin() + static_cast<std::ptrdiff_t>(row.offset), row.values,
                scratch.begin());
    const RotationId id = {seed, static_cast<std::uint32_t>(i)};
    coded.metadata.push_back(rotate_to_unit_gain(id, row.log2_length, scratch));
    for (const float value : scratch) {
      coded.words.push_back(std::bit_cast<std::uint32_t>(value));
    }
  }
  return coded;
}

void RotatedSign::from_words(const Received& received, std::span<const float> metadata,
                             std::uint64_t seed, std::span<float> out) const {
  const RowLayout rows = reference_rows(out.size());
  std::vector<float> scratch;
  for (std::size_t i = 0; i < rows.row_count(); ++i) {
    const Row row = rows.row(i);
    const auto target = out.subspan(row.offset, row.values);
    if (std::isnan(metadata[i])) {
      std::fill(target.begin(), target.end(), metadata[i]);
      continue;
    }
    scratch.resize(row.length());
    for (std::size_t k = 0; k < scratch.size(); ++k) {
      const std::size_t word = row.offset + k;  // full rows come first: words and values line up
      scratch[k] = rotated_value(received.words[word], received.fates[word], metadata[i]);
    }
    const RotationId id = {seed, static_cast<std::uint32_t>(i)};
    unrotate_row(best_kernels(), id, 1, row.log2_length, 1.0F, scratch.data());
    std::copy_n(scratch.begin(), target.size(), target.begin());
  }
}

}  // namespace spillway::codec::reference
