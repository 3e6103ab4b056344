// SPDX-License-Identifier: Apache-2.0
//
// The content of a coded all-reduce's pieces: the numbers that travel and are added. It makes them
// from the tensor and turns their sums back into values.
//
//   PlainContent    the tensor's own numbers. Each piece is rounded and turned into values by
//                   itself, so one is in flight while another is still rounded
//   SketchContent   (sketch_content.h) what a sketch makes of them, all at once: with a step before
//                   the first piece (fold) and one after the last (unfold)
//
// The tensor outlives the content. prepare() and deliver(): any thread, one at a time per block.
// fold() and unfold(): any thread, while nothing else runs. All else: the run's thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "codec/entropy/alphabet.h"
#include "collective/coded/code_book.h"
#include "collective/coded/coded_tensor.h"
#include "collective/report.h"

namespace spillway::collective {

// The alphabet of sums of so many ranks, of numbers up to `largest`. Symbols are the numbers
// themselves, which is quickest, if they fit in a byte. They also are if a rank's share has so many
// numbers that a longer table does not matter.
codec::entropy::Alphabet alphabet_of(std::int32_t largest, std::uint16_t ranks, std::size_t share);

class CodedContent {
 public:
  virtual ~CodedContent() = default;

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
  virtual void conclude(TensorCodes& /*codes*/, CodedDelivery& /*report*/) {}
};

class PlainContent final : public CodedContent {
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
