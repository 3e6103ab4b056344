// SPDX-License-Identifier: Apache-2.0
//
// The halves of an all-reduce as operations of their own, for codecs. A reduce-scatter brings
// contributions to the owner of each part, an all-gather brings each owner's part to all ranks.
// Both are of one tensor, that of all ranks' parts: part r, of `count` elements, is rank r's.
//
//                      this rank's input    its output
//   all-reduce         the tensor           the tensor
//   reduce-scatter     the tensor           its part
//   all-gather         its part             the tensor
//
// Pure functions of what all ranks know; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/operation.h"
#include "collective/shards.h"

namespace spillway::collective {

inline bool is_half(const Operation& operation) {
  return operation.kind == Kind::kReduceScatter || operation.kind == Kind::kAllGather;
}
// Contributions go to owners, and sums to all ranks.
inline bool has_contributions(const Operation& operation) {
  return operation.kind != Kind::kAllGather;
}
inline bool has_results(const Operation& operation) {
  return operation.kind != Kind::kReduceScatter;
}

inline std::size_t tensor_elements(const Operation& operation, std::size_t ranks) {
  return operation.count * (is_half(operation) ? ranks : 1);
}

inline Extent in_own_part(const Operation& operation, std::uint16_t rank, const Extent& extent) {
  return {extent.first - rank * operation.count, extent.count};
}
// An extent of the tensor, by the elements of this rank's input, which its residual is like, or of
// its output. It must lie in them.
inline Extent in_input(const Operation& operation, std::uint16_t rank, const Extent& extent) {
  return has_contributions(operation) ? extent : in_own_part(operation, rank, extent);
}
inline Extent in_output(const Operation& operation, std::uint16_t rank, const Extent& extent) {
  return has_results(operation) ? extent : in_own_part(operation, rank, extent);
}

}  // namespace spillway::collective
