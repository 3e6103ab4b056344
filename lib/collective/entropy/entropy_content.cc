// SPDX-License-Identifier: Apache-2.0
#include "collective/entropy/entropy_content.h"
#include "collective/halves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "codec/block_code.h"
#include "codec/kernels.h"
#include "codec/lanes.h"
#include "collective/entropy/chunk_layout.h"
#include "collective/reduction.h"

namespace spillway::collective {

namespace {

// With so many numbers to a symbol, making a table takes little of the time that coding takes.
constexpr std::size_t kNumbersPerSymbol = 32;

}  // namespace

codec::entropy::Alphabet alphabet_of(std::int32_t largest, std::uint16_t ranks, std::size_t share) {
  namespace entropy = codec::entropy;
  // Folded numbers, and the escape.
  const std::uint64_t symbols = 2 * static_cast<std::uint64_t>(largest) * ranks + 2;
  const bool is_direct =
      symbols <= 256 || (symbols <= entropy::kMaxSymbols && share / kNumbersPerSymbol >= symbols);
  return is_direct ? entropy::Alphabet::direct(static_cast<unsigned>(symbols)).value()
                   : entropy::Alphabet::ranges();
}

codec::entropy::Alphabet PlainContent::alphabet(std::uint8_t /*section*/,
                                                std::uint16_t ranks) const {
  return alphabet_of(tensor_.code.largest_number(), ranks,
                     tensor_.operation.count / tensor_.group.world);
}

void PlainContent::prepare(const BlockRun& blocks) {
  std::vector<float> scratch;
  for (std::size_t i = 0; i < blocks.count; ++i) {
    tensor_.prepare(blocks.block(i), scratch);
  }
}

void PlainContent::deliver(const BlockRun& blocks) {
  for (std::size_t i = 0; i < blocks.count; ++i) {
    tensor_.write(blocks.block(i), tensor_.numbers);
  }
}

namespace {

// Values whose dither is drawn at once: two halves of each word (codec/kernels.h).
constexpr std::size_t kRoundTogether = 4 * codec::kDrawWords;
static_assert(BlockGrid::kMostValues % kRoundTogether == 0);
// Dither half way between the lower number and the upper: rounds to the nearest.
constexpr std::uint32_t kHalfWay = 0x7FFF'7FFFU;
constexpr std::uint32_t kNumberDomain = 0x434F'4445U;
// Values are raised by this power of two if the reciprocal of their unit is not a float. The
// smallest denormal at the highest precision then has a factor of about 1e30.
constexpr int kRaisedBy = 64;

std::size_t padded(std::size_t count) {
  return (count + kRoundTogether - 1) / kRoundTogether * kRoundTogether;
}

}  // namespace

Magnitudes measure_magnitudes(std::span<const float> values) {
  constexpr std::size_t kSums = 8;
  std::array<double, kSums> sums{};
  const std::size_t whole = values.size() / kSums * kSums;
  for (std::size_t i = 0; i < whole; i += kSums) {
    for (std::size_t k = 0; k < kSums; ++k) {
      sums[k] += static_cast<double>(std::fabs(values[i + k]));
    }
  }
  for (std::size_t i = whole; i < values.size(); ++i) {
    sums[0] += static_cast<double>(std::fabs(values[i]));
  }
  Magnitudes magnitudes{codec::measure_block(values), 0.0};
  for (const double sum : sums) {
    magnitudes.sum += sum;
  }
  return magnitudes;
}

NumberCode::NumberCode(unsigned precision, float scale)
    : most_((1 << (precision - 1)) - 1), unit_(static_cast<double>(scale) / most_) {
  SPILLWAY_CHECK(precision >= kLeastEntropyPrecision && precision <= kMostEntropyPrecision);
  if (!codec::is_special_scale(scale)) {
    const double factor = 1.0 / unit_;
    const bool fits = factor <= static_cast<double>(std::numeric_limits<float>::max());
    raised_by_ = fits ? 0 : kRaisedBy;
    factor_ = static_cast<float>(std::ldexp(factor, -raised_by_));
  }
}

std::size_t NumberCode::round(std::span<const float> values, std::span<const std::uint32_t> dither,
                              std::span<std::int32_t> numbers) const {
  std::array<float, BlockGrid::kMostValues> row;
  std::array<std::uint32_t, BlockGrid::kMostValues> levels;
  const std::size_t count = padded(values.size());
  const float raise = std::ldexp(1.0F, raised_by_);
  std::transform(values.begin(), values.end(), row.begin(),
                 [raise](float value) { return value * raise; });  // exact
  std::fill(row.begin() + static_cast<std::ptrdiff_t>(values.size()),
            row.begin() + static_cast<std::ptrdiff_t>(count), 0.0F);
  const std::size_t clipped =
      codec::best_kernels().round_levels(row.data(), count, factor_, static_cast<float>(2 * most_),
                                         nullptr, dither.data(), levels.data());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::int32_t>(levels[i]) - most_;
  }
  return clipped;
}

std::size_t NumberCode::round_at_random(std::span<const float> values, std::uint64_t key,
                                        std::uint32_t block,
                                        std::span<std::int32_t> numbers) const {
  if (factor_ == 0.0F) {
    std::fill(numbers.begin(), numbers.end(), 0);
    return 0;
  }
  std::array<std::uint32_t, BlockGrid::kMostValues / 2> dither;
  codec::best_kernels().draw_words(key, {0, block, 0, kNumberDomain}, padded(values.size()) / 2,
                                   dither.data());
  return round(values, dither, numbers);
}

std::size_t NumberCode::round_to_nearest(std::span<const float> values,
                                         std::span<std::int32_t> numbers) const {
  if (factor_ == 0.0F) {
    std::fill(numbers.begin(), numbers.end(), 0);
    return 0;
  }
  static constexpr auto kDither = [] {
    std::array<std::uint32_t, BlockGrid::kMostValues / 2> words{};
    words.fill(kHalfWay);
    return words;
  }();
  return round(values, kDither, numbers);
}

void NumberCode::values_of(std::span<const std::int32_t> numbers, double weight,
                           std::span<float> values) const {
  if (std::isnan(unit_)) {
    std::fill_n(values.begin(), numbers.size(), std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const double step = unit_ * weight;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    values[i] = static_cast<float>(static_cast<double>(numbers[i]) * step);
  }
}

void TensorNumbers::own(std::size_t block, std::vector<float>& values) const {
  const Extent extent = in_input(operation, group.rank, grid.extent_of(block));
  const OwnValues own(operation, extent);
  values.assign(own.view().begin(), own.view().end());
  if (!residual.empty()) {
    add_values(residual.subspan(extent.first, extent.count), values);
  }
}

std::size_t TensorNumbers::round(std::size_t block, std::span<const float> values) {
  const Extent extent = grid.extent_of(block);
  const std::span<std::int32_t> to = std::span(numbers).subspan(extent.first, extent.count);
  return residual.empty()
             ? code.round_at_random(values, draws, static_cast<std::uint32_t>(block), to)
             : code.round_to_nearest(values, to);
}

// The residual becomes what this rank's numbers lack of its part; zero if that is not finite.
void TensorNumbers::prepare(std::size_t block, std::vector<float>& scratch) {
  if (is_rounded && residual.empty()) {
    return;
  }
  own(block, scratch);
  if (!is_rounded) {
    round(block, scratch);
  }
  if (residual.empty()) {
    return;
  }
  const Extent extent = grid.extent_of(block);
  std::array<float, BlockGrid::kMostValues> rounded;
  code.values_of(std::span(numbers).subspan(extent.first, extent.count), 1.0, rounded);
  const std::span<float> owed =
      residual.subspan(in_input(operation, group.rank, extent).first, extent.count);
  for (std::size_t i = 0; i < extent.count; ++i) {
    owed[i] = is_finite ? scratch[i] - rounded[i] : 0.0F;
  }
}

void TensorNumbers::write(std::size_t block, std::span<const std::int32_t> sums) const {
  const Extent extent = grid.extent_of(block);
  const bool averages = is_reduction(operation.kind) && operation.op == ReduceOp::kAverage;
  const double weight = averages ? 1.0 / group.world : 1.0;
  std::array<float, BlockGrid::kMostValues> values;
  code.values_of(sums.subspan(extent.first, extent.count), weight, values);
  const std::size_t first = in_output(operation, group.rank, extent).first;
  convert_from_float(
      operation.type, values.data(), extent.count,
      static_cast<std::uint8_t*>(operation.output) + first * element_size(operation.type));
}

void TensorNumbers::add_to_residual(std::size_t index) {
  if (residual.empty() || !is_finite) {
    return;
  }
  float value = 0.0F;
  code.values_of(std::span(numbers).subspan(index, 1), 1.0, std::span(&value, 1));
  residual[index] += value;
}

}  // namespace spillway::collective
