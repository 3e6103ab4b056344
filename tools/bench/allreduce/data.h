// SPDX-License-Identifier: Apache-2.0
//
// The inputs of a benchmark's ranks, which every rank can generate for all ranks, and the expected
// result of their all-reduce.
//
// Floating-point inputs are Gaussian, integers uniform. Elements come from one table, in blocks
// that start at a random place in it. That is as fast as copying, and reveals blocks that end up in
// the wrong place or come from the wrong rank.
//
// Immutable: any thread. Memory: the table, up to about 300 KiB; while checking, a block per rank.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/operation.h"

namespace spillway::bench {

class AllreduceData {
 public:
  explicit AllreduceData(collective::DataType type);

  // Writes the first `count` elements of a rank's input.
  void fill(std::uint16_t rank, std::size_t count, std::uint8_t* to) const;

  struct Deviation {
    double wrong = 0.0;   // elements
    double error = 0.0;   // squared, against double-precision sums
    double energy = 0.0;  // of those sums
  };
  // Counts wrong elements if nothing may be lost. If the order of additions is known or irrelevant,
  // an element is wrong when a bit differs. Otherwise it is wrong when it is off by more than
  // additions in any order can be. Error and energy are computed for floating-point types only,
  // over at most about kSampled evenly spread elements.
  Deviation compare(const collective::Operation& operation, collective::Algorithm used,
                    std::uint16_t world, const std::uint8_t* result) const;

  static constexpr std::size_t kSampled = 4'000'000;

 private:
  static constexpr std::size_t kBlock = 4096;    // elements
  static constexpr std::size_t kTable = 32'768;  // possible starts of a block

  struct Reference;
  const std::uint8_t* block_of(std::uint16_t rank, std::size_t block) const;
  void add_up(const collective::Operation& operation, std::size_t elements,
              Reference& reference) const;
  static Deviation measure(const Reference& reference, const std::vector<double>& values,
                           double bound);

  collective::DataType type_;
  std::size_t element_;
  std::vector<std::uint8_t> table_;
};

}  // namespace spillway::bench
