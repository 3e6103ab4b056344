// SPDX-License-Identifier: Apache-2.0
//
// The inputs of a benchmark's ranks, which every rank can make for itself, and what an all-reduce
// of them should have come to.
//
// Floating-point inputs are Gaussian, integers uniform. Elements come from one table, in blocks
// that begin at a random place of it: as quick as copying, and a block in the wrong place or from
// the wrong rank is noticed.
//
// Immutable: any thread. Memory: the table, about 300 KiB, and while checking a block a rank.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/operation.h"

namespace spillway::bench {

class AllreduceData {
 public:
  explicit AllreduceData(collective::DataType type);

  // The first `count` elements of a rank's input.
  void fill(std::uint16_t rank, std::size_t count, std::uint8_t* to) const;

  struct Deviation {
    double wrong = 0.0;   // elements
    double error = 0.0;   // squared, against sums in double precision
    double energy = 0.0;  // of those sums
  };
  // Wrong, where nothing may be lost: what differs in a bit where the order of additions is known
  // or does not matter, else what is further off than additions in any order can be. Error and
  // energy, of floating-point numbers alone, are of about kSampled elements at most, spread evenly.
  Deviation compare(const collective::Operation& operation, collective::Algorithm used,
                    std::uint16_t world, const std::uint8_t* result) const;

  static constexpr std::size_t kSampled = 4'000'000;

 private:
  static constexpr std::size_t kBlock = 4096;    // elements
  static constexpr std::size_t kTable = 32'768;  // places where a block may begin

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
