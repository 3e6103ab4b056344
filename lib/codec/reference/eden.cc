// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/eden.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "codec/kernels.h"
#include "codec/reference/bit_packing.h"
#include "codec/reference/coordinates.h"
#include "codec/rotation.h"

namespace spillway::codec::reference {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The largest magnitude; NaN if a value is not finite.
float peak_of(std::span<const float> values) {
  float peak = 0.0F;
  for (const float value : values) {
    if (!std::isfinite(value)) {
      return kNan;
    }
    peak = std::max(peak, std::fabs(value));
  }
  return peak;
}

// Copies the row with its padding, times 2^-exponent, so that no sum overflows or underflows.
void load_row(std::span<const float> from, int exponent, std::span<float> row) {
  const double factor = std::ldexp(1.0, -exponent);
  for (std::size_t i = 0; i < from.size(); ++i) {
    row[i] = static_cast<float>(from[i] * factor);
  }
  std::fill(row.begin() + static_cast<std::ptrdiff_t>(from.size()), row.end(), 0.0F);
}

double sum_of_squares(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) {
    sum += static_cast<double>(value) * value;
  }
  return sum;
}

// Writes the indices of a row that was rotated without normalisation, r = sqrt(d) y; returns S.
double quantise_row(const Quantiser& quantiser, std::span<const float> rotated,
                    base::MutableByteView bytes) {
  const double energy = sum_of_squares(rotated);
  const double root_length = std::sqrt(static_cast<double>(rotated.size()));
  const auto to_unit = static_cast<float>(root_length / std::sqrt(energy));
  BitWriter writer(bytes);
  double correlation = 0.0;  // <c, r>
  for (const float value : rotated) {
    const std::uint32_t index = quantiser.index_of(value * to_unit);
    correlation += static_cast<double>(quantiser.centroids[index]) * value;
    writer.put(index, quantiser.bits);
  }
  writer.flush();
  return energy / (correlation * root_length);  // |r|^2 / d over <c, r> / sqrt(d)
}

float encode_row(const Quantiser& quantiser, RotationId id, std::span<const float> from,
                 unsigned log2_length, base::MutableByteView indices) {
  const float peak = peak_of(from);
  if (std::isnan(peak) || peak == 0.0F) {
    return peak;
  }
  int exponent = 0;
  std::frexp(peak, &exponent);
  std::vector<float> row(std::size_t{1} << log2_length);
  load_row(from, exponent, row);
  rotate_row(best_kernels(), id, 0, 1, log2_length, row.data());
  return saturated(std::ldexp(quantise_row(quantiser, row, indices), exponent));
}

void decode_row(const Quantiser& quantiser, RotationId id, float scale, base::ByteView indices,
                unsigned log2_length, std::span<float> out) {
  if (!std::isfinite(scale) || scale == 0.0F) {
    std::fill(out.begin(), out.end(), scale == 0.0F ? 0.0F : kNan);
    return;
  }
  std::vector<float> row(std::size_t{1} << log2_length);
  BitReader reader(indices);
  for (float& value : row) {
    value = quantiser.centroids[reader.get(quantiser.bits)];
  }
  unrotate_row(best_kernels(), id, 1, log2_length, scale, row.data());
  std::copy_n(row.begin(), out.size(), out.begin());
}

}  // namespace

EdenCodec::EdenCodec(unsigned bits)
    : quantiser_(lloyd_max_quantiser(bits)), name_("eden-" + std::to_string(bits)) {}

std::size_t EdenCodec::encoded_bytes(std::size_t count) const {
  const RowLayout rows = reference_rows(count);
  return rows.row_count() * sizeof(float) + packed_bytes(padded_length(rows), quantiser_.bits);
}

void EdenCodec::encode_into(std::span<const float> tensor, std::uint64_t seed,
                            base::MutableByteView bytes) const {
  const RowLayout rows = reference_rows(tensor.size());
  base::ByteWriter writer(bytes);
  for (std::size_t i = 0; i < rows.row_count(); ++i) {
    const Row row = rows.row(i);
    const base::MutableByteView scale = writer.reserve(sizeof(float));
    const base::MutableByteView indices =
        writer.reserve(packed_bytes(row.length(), quantiser_.bits));
    const RotationId id = {seed, static_cast<std::uint32_t>(i)};
    base::store_le(scale.data(), encode_row(quantiser_, id, tensor.subspan(row.offset, row.values),
                                            row.log2_length, indices));
  }
  SPILLWAY_CHECK(writer.ok() && writer.remaining() == 0);
}

base::Status EdenCodec::decode_from(base::ByteView bytes, std::uint64_t seed,
                                    std::span<float> out) const {
  const RowLayout rows = reference_rows(out.size());
  base::ByteReader reader(bytes);
  for (std::size_t i = 0; i < rows.row_count(); ++i) {
    const Row row = rows.row(i);
    const auto scale = reader.read<float>();
    const base::ByteView indices = reader.take(packed_bytes(row.length(), quantiser_.bits));
    const RotationId id = {seed, static_cast<std::uint32_t>(i)};
    decode_row(quantiser_, id, scale, indices, row.log2_length,
               out.subspan(row.offset, row.values));
  }
  SPILLWAY_CHECK(reader.ok() && reader.remaining() == 0);  // the length was already checked
  return {};
}

}  // namespace spillway::codec::reference
