// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch/reference/sparse_reducer.h"

#include <algorithm>
#include <bit>

#include "codec/sketch/support_code.h"

namespace spillway::codec::sketch::reference {

unsigned number_bits(const SparseJob& job, unsigned ranks) {
  const auto largest = static_cast<std::uint64_t>(job.limit) * ranks;
  return static_cast<unsigned>(std::bit_width(largest)) + 1;
}

std::uint64_t support_bits(const Support& chosen, const Support& excluded) {
  return 8 * encode_support(chosen, excluded).size();
}

std::vector<std::int32_t> true_sum(std::span<const std::vector<std::int32_t>> parts) {
  std::vector<std::int32_t> sum = parts.front();
  for (const auto& part : parts.subspan(1)) {
    std::transform(sum.begin(), sum.end(), part.begin(), sum.begin(), wrapping_add);
  }
  return sum;
}

Support union_of(std::span<const std::vector<std::int32_t>> parts) {
  Support found(parts.front().size());
  for (const auto& part : parts) {
    found |= Support::of_nonzero(part);
  }
  return found;
}

}  // namespace spillway::codec::sketch::reference
