// SPDX-License-Identifier: Apache-2.0
//
// The content of an entropy-coded all-reduce's pieces: the numbers that travel and are added. It
// makes them from the tensor and turns their sums back into values.
//
//   PlainContent    the tensor's own numbers. Each piece is rounded and turned into values by
//                   itself, so one is in flight while another is still rounded
//   SketchContent   (sketch_content.h) what a sketch makes of them, all at once: with a step before
//                   the first piece (fold) and one after the last (unfold)
//
// The tensor outlives the content. prepare() and deliver(): any thread, one at a time per block.
// fold() and unfold(): any thread, while nothing else runs. All else: the run's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "codec/entropy/alphabet.h"
#include "collective/entropy/chunk_layout.h"
#include "collective/entropy/code_cache.h"
#include "collective/operation.h"
#include "collective/report.h"

namespace spillway::collective {

// Values as whole numbers of one unit that all ranks share, and sums of numbers as values. With a
// precision of p bits a number lies between -m and m, m = 2^(p-1) - 1, and the unit is the scale
// divided by m. Values beyond a predicted scale are clipped.
//
// Numbers are rounded at random, so that sums are right on average; or to the nearest, if the next
// step makes up for what rounding took away. Sums are added without loss, so values depend on the
// sum alone: the same bits at all ranks.
//
// Special scales (codec/lanes.h): 0 gives zeros throughout, NaN gives NaN throughout.
//
// Pure functions; any thread.

// The largest magnitude of some values, NaN if one is not finite, and the sum of all magnitudes.
struct Magnitudes {
  float largest = 0.0F;
  double sum = 0.0;
};
Magnitudes measure_magnitudes(std::span<const float> values);

class NumberCode {
 public:
  NumberCode() = default;
  NumberCode(unsigned precision, float scale);

  std::int32_t largest_number() const { return most_; }
  double unit() const { return unit_; }  // 0 or NaN where the scale is special

  // Round up to BlockGrid::kMostValues at a time; return how many were clipped. `key` and `block`
  // name the draws.
  std::size_t round_at_random(std::span<const float> values, std::uint64_t key, std::uint32_t block,
                              std::span<std::int32_t> numbers) const;
  std::size_t round_to_nearest(std::span<const float> values,
                               std::span<std::int32_t> numbers) const;

  // Multiplies each number by the unit and `weight`.
  void values_of(std::span<const std::int32_t> numbers, double weight,
                 std::span<float> values) const;

 private:
  std::size_t round(std::span<const float> values, std::span<const std::uint32_t> dither,
                    std::span<std::int32_t> numbers) const;

  std::int32_t most_ = 1;
  float factor_ = 0.0F;  // for values raised by 2^raised_by_; 0: a special scale
  int raised_by_ = 0;    // so that the factor is a float where the unit is tiny
  double unit_ = 0.0;
};

// The tensor of an entropy-coded all-reduce at one rank: values that become numbers, sums that
// become values, and the residual in between (error feedback). By blocks:
//
//   own()        this rank's values, plus their residual
//   round()      these ─► numbers
//   prepare()    both, if numbers are not there yet; and the new residual
//   write()      sums ─► values, at the caller's output
//
// Any thread, one at a time per block; the caller's memory and the residual outlive it.

struct TensorNumbers {
  const Operation& operation;
  Group group;
  BlockGrid grid;
  std::span<float> residual;  // for error feedback; or empty
  std::uint64_t draws = 0;    // key of the draws for random rounding
  std::vector<std::int32_t> numbers = std::vector<std::int32_t>(grid.values());
  NumberCode code{};
  bool is_rounded = false;  // the numbers are there
  bool is_finite = true;    // at all ranks

  void own(std::size_t block, std::vector<float>& values) const;
  // Returns how many were clipped.
  std::size_t round(std::size_t block, std::span<const float> values);
  void prepare(std::size_t block, std::vector<float>& scratch);
  // `sums` are of the whole tensor.
  void write(std::size_t block, std::span<const std::int32_t> sums) const;
  // This rank's number at `index` is in no sum: it joins the residual.
  void add_to_residual(std::size_t index);
};

// The alphabet of sums of so many ranks, of numbers up to `largest`. Symbols are the numbers
// themselves, which is quickest, if they fit in a byte. They also are if a rank's share has so many
// numbers that a longer table does not matter.
codec::entropy::Alphabet alphabet_of(std::int32_t largest, std::uint16_t ranks, std::size_t share);

class EntropyContent {
 public:
  virtual ~EntropyContent() = default;

  // How the numbers lie; the same at all ranks.
  virtual const BlockGrid& grid() const = 0;
  virtual std::span<std::int32_t> numbers() = 0;
  // For a section's sums of so many ranks. The same from one operation to the next.
  virtual codec::entropy::Alphabet alphabet(std::uint8_t section, std::uint16_t ranks) const = 0;
  // True if the section's numbers are about as large as the tensor's values.
  virtual bool is_like_values(std::uint8_t /*section*/) const { return true; }
  // How many of a piece's numbers stand for a value of the tensor.
  virtual std::size_t values_of(const ChunkPiece& piece) const { return piece.values; }

  // Called when this rank's numbers of these blocks are needed.
  virtual void prepare(const BlockRun& blocks) = 0;
  // Called when these blocks hold the sums of all ranks.
  virtual void deliver(const BlockRun& blocks) = 0;

  // True if fold() has to run before the first piece, or unfold() behind the last.
  virtual bool has_fold() const { return false; }
  virtual void fold() {}
  virtual bool has_unfold() const { return false; }
  virtual base::Status unfold() { return {}; }
  // All has ended: adds what is remembered, and what is reported.
  virtual void conclude(TensorCodes& /*codes*/, EntropyDelivery& /*report*/) {}
};

class PlainContent final : public EntropyContent {
 public:
  explicit PlainContent(TensorNumbers& tensor) : tensor_(tensor) {}

  const BlockGrid& grid() const override { return tensor_.grid; }
  std::span<std::int32_t> numbers() override { return tensor_.numbers; }
  codec::entropy::Alphabet alphabet(std::uint8_t section, std::uint16_t ranks) const override;
  void prepare(const BlockRun& blocks) override;
  void deliver(const BlockRun& blocks) override;

 private:
  TensorNumbers& tensor_;
};

}  // namespace spillway::collective
