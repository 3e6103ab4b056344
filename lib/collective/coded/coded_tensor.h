// SPDX-License-Identifier: Apache-2.0
//
// The tensor of a coded all-reduce at one rank: values that become numbers, sums that become
// values, and the residual in between (error feedback). By blocks:
//
//   own()        this rank's values, plus their residual
//   round()      these ─► numbers
//   prepare()    both, if numbers are not there yet; and the new residual
//   write()      sums ─► values, at the caller's output
//
// Any thread, one at a time per block; the caller's memory and the residual outlive it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collective/coded/chunk_layout.h"
#include "collective/coded/coded_numbers.h"

namespace spillway::collective {

struct TensorNumbers {
  const Operation& operation;
  Group group;
  BlockGrid grid;
  std::span<float> residual;  // for error feedback; or empty
  std::uint64_t draws = 0;    // key of the draws for random rounding
  std::vector<std::int32_t> numbers = std::vector<std::int32_t>(operation.count);
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
  void owe(std::size_t index);
};

}  // namespace spillway::collective
