// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch/sparse_code.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "codec/sketch/count_sketch.h"
#include "codec/sketch/support.h"

namespace spillway::codec::sketch {

// ------------------------------------------------------------------ prediction

namespace {

// Counters of 64 indices, one bit of each per word: up where `up` is set, down elsewhere.
void count_word(std::uint64_t up, std::uint64_t& upper, std::uint64_t& lower) {
  const std::uint64_t raised_upper = upper | lower;
  const std::uint64_t raised_lower = upper | ~lower;
  const std::uint64_t lowered_upper = upper & lower;
  const std::uint64_t lowered_lower = upper & ~lower;
  upper = (up & raised_upper) | (~up & lowered_upper);
  lower = (up & raised_lower) | (~up & lowered_lower);
}

std::uint64_t fold(std::uint64_t hash, const Support& support) {
  for (const std::uint64_t word : support.words()) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

SupportPredictor::SupportPredictor(std::size_t length, PredictionRule rule)
    : rule_(rule),
      predicted_(Support::all(length)),
      lower_(rule == PredictionRule::kCounter ? length : 0) {}

void SupportPredictor::advance(const Support& nonzero) {
  SPILLWAY_CHECK(nonzero.length() == predicted_.length());
  if (rule_ == PredictionRule::kLast) {
    predicted_ = nonzero;
    return;
  }
  for (std::size_t word = 0; word < nonzero.words().size(); ++word) {
    count_word(nonzero.words()[word], predicted_.words()[word], lower_.words()[word]);
  }
}

void SupportPredictor::reset() {
  predicted_ = Support::all(predicted_.length());
  lower_ = Support(lower_.length());
}

std::uint64_t SupportPredictor::fingerprint() const {
  return fold(fold(predicted_.length(), predicted_), lower_);
}

// ------------------------------------------------------------------ one step

namespace {

constexpr unsigned kLeastCellsPercent = 130;
constexpr unsigned kMostPercent = 1000;
// A sketch has room for some misses even if the last step had none.
constexpr std::size_t kLeastMisses = 16;

base::Status check_options(std::size_t length, const SparseOptions& options) {
  if (length > kMaxSupportLength) {
    return {base::StatusCode::kLimitExceeded,
            "sketch: a tensor has up to 2^32 values, not " + std::to_string(length) + ": split it"};
  }
  if (options.contributors == 0 || options.cells_percent < kLeastCellsPercent ||
      options.cells_percent > kMostPercent || options.headroom_percent < 100 ||
      options.headroom_percent > kMostPercent || options.most_numbers_percent > 100) {
    return base::invalid_argument(
        "sketch: options need one contributor or more, 130 to 1000 cells per hundred keys, 100 to "
        "1000 per cent of headroom and up to 100 per cent of numbers");
  }
  return {};
}

bool all_within(std::span<const std::int32_t> values, std::int32_t limit) {
  // Unsigned, so that one comparison checks both limits.
  const std::uint32_t width = 2 * static_cast<std::uint32_t>(limit);
  bool is_within = true;
  for (const std::int32_t value : values) {
    is_within &= static_cast<std::uint32_t>(value) + static_cast<std::uint32_t>(limit) <= width;
  }
  return is_within;
}

// Predicted values whose number did not arrive, by their index in the tensor.
Support lost_values(const Support& predicted, const Support& erased) {
  Support lost(predicted.length());
  std::size_t place = 0;
  predicted.for_each([&](std::size_t index) {
    if (erased.contains(place++)) {
      lost.insert(index);
    }
  });
  return lost;
}

Support erased_cells(const Support& erased, std::size_t dense, std::size_t cells) {
  Support found(cells);
  for (std::size_t cell = 0; cell < cells; ++cell) {
    if (erased.contains(dense + cell)) {
      found.insert(cell);
    }
  }
  return found;
}

}  // namespace

void SparsePart::add(const SparsePart& other) {
  SPILLWAY_CHECK(numbers.size() == other.numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = wrapping_add(numbers[i], other.numbers[i]);
  }
  misses |= other.misses;
}

base::Result<SparseCode> SparseCode::make(std::size_t length, const SparseOptions& options) {
  if (base::Status status = check_options(length, options); !status.ok()) {
    return status;
  }
  return SparseCode(length, options);
}

SparseCode::SparseCode(std::size_t length, const SparseOptions& options)
    : options_(options), predictor_(length, options.rule), plan_(next_plan()) {}

SparseCode::Plan SparseCode::next_plan() const {
  const Support& predicted = predictor_.predicted();
  const std::size_t dense = predicted.count();
  const std::size_t length = predicted.length();
  const std::size_t keys =
      std::max(kLeastMisses, (last_misses_ * options_.headroom_percent + 99) / 100);
  const auto shape = SketchShape::for_peeling(keys, options_.cells_percent);
  const bool misses_much = options_.most_misses_percent != 0 && last_misses_ > kLeastMisses &&
                           last_misses_ * 100 > options_.most_misses_percent * dense;
  const bool is_long = (dense + shape.cells()) * 100 >= options_.most_numbers_percent * length;
  if (misses_much || is_long) {
    return {Support::all(length), length, {}};
  }
  return {predicted, dense, shape};
}

base::Result<SparsePart> SparseCode::encode(std::span<const std::int32_t> values,
                                            std::uint64_t seed) const {
  if (values.size() != plan_.predicted.length()) {
    return base::invalid_argument("sketch: " + std::to_string(values.size()) +
                                  " values, but the code was made for " +
                                  std::to_string(plan_.predicted.length()));
  }
  const std::int32_t limit = largest_number(options_.contributors);
  if (!all_within(values, limit)) {
    return base::invalid_argument("sketch: a value exceeds " + std::to_string(limit) +
                                  ", so sums of all ranks might not fit 32 bits: scale it down");
  }
  SparsePart part{std::vector<std::int32_t>(numbers()),
                  Support::of_nonzero(values).without(plan_.predicted)};
  const std::span<std::int32_t> all(part.numbers);
  gather(plan_.predicted, values, all.first(plan_.dense));
  add_to_sketch(CellHash(plan_.shape, seed), part.misses, values, all.subspan(plan_.dense));
  return part;
}

bool SparseCode::is_of_this_step(const SparsePart& sum) const {
  return sum.numbers.size() == numbers() && sum.misses.length() == plan_.predicted.length() &&
         !sum.misses.meets(plan_.predicted);
}

base::Result<SparseSum> SparseCode::decode(const SparsePart& sum, std::uint64_t seed,
                                           const Support& erased) const {
  const std::size_t length = plan_.predicted.length();
  if (!is_of_this_step(sum) || (erased.length() != 0 && erased.length() != numbers())) {
    return base::Status{base::StatusCode::kMismatch,
                        "sketch: the sum belongs to another step, because ranks differ in their "
                        "predictions: reset them at all ranks"};
  }
  const std::span<const std::int32_t> all(sum.numbers);
  SparseSum found{std::vector<std::int32_t>(length), Support(length), sum.misses.count()};
  scatter(plan_.predicted, all.first(plan_.dense), found.values);
  Support lost_cells;
  if (erased.length() != 0) {
    found.unrecovered = lost_values(plan_.predicted, erased);
    found.unrecovered.for_each([&](std::size_t index) { found.values[index] = 0; });
    lost_cells = erased_cells(erased, plan_.dense, plan_.shape.cells());
  }
  const auto left = peel(CellHash(plan_.shape, seed), sum.misses, all.subspan(plan_.dense),
                         lost_cells, found.values);
  if (!left.ok()) {
    return left.status();
  }
  found.unrecovered |= *left;
  return found;
}

void SparseCode::advance(const SparseSum& sum) {
  Support nonzero = Support::of_nonzero(sum.values);
  nonzero |= sum.unrecovered;
  // A dense step has no misses, but would have had some.
  const std::size_t unpredicted = nonzero.without(predictor_.predicted()).count();
  last_misses_ = has_history_ ? std::max(sum.misses, unpredicted) : nonzero.count();
  has_history_ = true;
  predictor_.advance(nonzero);
  plan_ = next_plan();
}

void SparseCode::reset() {
  predictor_.reset();
  has_history_ = false;
  last_misses_ = 0;
  plan_ = next_plan();
}

std::uint64_t SparseCode::fingerprint() const {
  const std::uint64_t history = 2 * std::uint64_t{last_misses_} + (has_history_ ? 1 : 0);
  return predictor_.fingerprint() ^ history * 0x9E3779B97F4A7C15U;
}

}  // namespace spillway::codec::sketch
