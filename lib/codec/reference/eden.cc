// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/reference_codec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "base/check.h"
#include "codec/kernels.h"
#include "codec/reference/coordinates.h"
#include "codec/rotation.h"

namespace spillway::codec::reference {

// ------------------------------------------------------------------ Lloyd-Max quantisers

namespace {

// By symmetry only the positive half is solved: cells [0, t1), [t1, t2), ... [tn, infinity).
using Levels = std::vector<double>;

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

double density(double x) {
  return std::exp(-0.5 * x * x) * (0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
}

double mass_above(double x) {
  return 0.5 * std::erfc(x / std::numbers::sqrt2);
}

double lower_bound_of(const Levels& levels, std::size_t cell) {
  return cell == 0 ? 0.0 : 0.5 * (levels[cell - 1] + levels[cell]);
}

double upper_bound_of(const Levels& levels, std::size_t cell) {
  return cell + 1 == levels.size() ? kUnbounded : 0.5 * (levels[cell] + levels[cell + 1]);
}

// The mean of N(0, 1) between two bounds, and its derivatives by the bounds.
struct CellMean {
  double mean;
  double per_lower;
  double per_upper;
};

CellMean cell_mean(double lower, double upper) {
  const double mass = mass_above(lower) - mass_above(upper);
  const double mean = (density(lower) - density(upper)) / mass;
  const double per_upper = upper == kUnbounded ? 0.0 : density(upper) * (upper - mean) / mass;
  return {mean, density(lower) * (mean - lower) / mass, per_upper};
}

// One Newton step for mean(cell i) - level i = 0; returns the largest correction. Each equation
// involves only its neighbours. The density is log-concave, so the system is diagonally dominant
// and elimination without pivoting is safe.
double newton_step(Levels& levels) {
  const std::size_t count = levels.size();
  std::vector<double> above(count);  // left by elimination right of the diagonal
  std::vector<double> step(count);
  for (std::size_t i = 0; i < count; ++i) {
    const CellMean cell = cell_mean(lower_bound_of(levels, i), upper_bound_of(levels, i));
    const double left = i == 0 ? 0.0 : -0.5 * cell.per_lower;  // bounds are midpoints
    const double right = -0.5 * cell.per_upper;
    const double diagonal = 1.0 + left + right - (i == 0 ? 0.0 : left * above[i - 1]);
    above[i] = right / diagonal;
    step[i] = (cell.mean - levels[i] - (i == 0 ? 0.0 : left * step[i - 1])) / diagonal;
  }
  double largest = 0.0;
  for (std::size_t i = count; i-- > 0;) {
    step[i] -= i + 1 == count ? 0.0 : above[i] * step[i + 1];
    levels[i] += step[i];
    largest = std::max(largest, std::fabs(step[i]));
  }
  return largest;
}

void solve(Levels& levels) {
  constexpr double kConverged =
      1e-10;  // far below a float's last digit, above the rounding error of 1e-12
  constexpr int kMaxSteps = 20;  // at most 5 are taken
  for (int i = 0; i < kMaxSteps; ++i) {
    if (newton_step(levels) < kConverged) {
      return;
    }
  }
  SPILLWAY_CHECK(!"Lloyd-Max did not converge");
}

// The initial guess for twice as many levels: two in each cell.
Levels split_cells(const Levels& levels) {
  Levels finer;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const double lower = lower_bound_of(levels, i);
    const double reach = std::min(upper_bound_of(levels, i) - levels[i], levels[i] - lower);
    finer.push_back(0.5 * (lower + levels[i]));
    finer.push_back(levels[i] + 0.5 * reach);
  }
  return finer;
}

Quantiser make_quantiser(unsigned bits, const Levels& levels) {
  Quantiser quantiser{bits, {}, {}, 1.0};
  for (std::size_t i = levels.size(); i-- > 0;) {
    quantiser.centroids.push_back(static_cast<float>(-levels[i]));
    quantiser.boundaries.push_back(static_cast<float>(-lower_bound_of(levels, i)));
  }
  quantiser.boundaries.back() = 0.0F;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (i > 0) {
      quantiser.boundaries.push_back(static_cast<float>(lower_bound_of(levels, i)));
    }
    quantiser.centroids.push_back(static_cast<float>(levels[i]));
    const double mass =
        mass_above(lower_bound_of(levels, i)) - mass_above(upper_bound_of(levels, i));
    quantiser.distortion -= 2.0 * mass * levels[i] * levels[i];
  }
  return quantiser;
}

std::vector<Quantiser> make_all() {
  std::vector<Quantiser> all;
  Levels levels = {std::sqrt(2.0 * std::numbers::inv_pi)};  // E|z|: one bit, exactly
  for (unsigned bits = 1; bits <= kMaxQuantiserBits; ++bits) {
    if (bits > 1) {
      levels = split_cells(levels);
    }
    solve(levels);
    all.push_back(make_quantiser(bits, levels));
  }
  return all;
}

}  // namespace

std::uint32_t Quantiser::index_of(float z) const {
  // A binary search without branches: 2^bits - 1 boundaries halve evenly.
  std::uint32_t index = 0;
  for (std::uint32_t half = 1U << (bits - 1); half > 0; half /= 2) {
    index += z >= boundaries[index + half - 1] ? half : 0;
  }
  return index;
}

const Quantiser& lloyd_max_quantiser(unsigned bits) {
  SPILLWAY_CHECK(bits >= 1 && bits <= kMaxQuantiserBits);
  static const std::vector<Quantiser> all = make_all();
  return all[bits - 1];
}

// ------------------------------------------------------------------ the codec

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
