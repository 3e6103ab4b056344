// SPDX-License-Identifier: Apache-2.0
#include "collective/coded/sketch_fold.h"

#include <bit>
#include <utility>

#include "base/check.h"

namespace spillway::collective {
namespace {

namespace sketch = codec::sketch;

// Writes a number for each place outside `predicted`: 1 for a miss, else 0.
void write_counts(const sketch::Support& misses, const sketch::Support& predicted,
                  std::span<std::int32_t> counts) {
  std::int32_t* to = counts.data();
  for (std::size_t word = 0; word < predicted.words().size(); ++word) {
    const std::uint64_t missing = misses.words()[word];
    std::uint64_t outside = ~predicted.words()[word] & predicted.valid_bits(word);
    if (missing == 0) {
      to += std::popcount(outside);  // they are zero
      continue;
    }
    for (; outside != 0; outside &= outside - 1) {
      *to++ = static_cast<std::int32_t>(missing >> std::countr_zero(outside) & 1U);
    }
  }
}

sketch::Support read_counts(std::span<const std::int32_t> counts,
                            const sketch::Support& predicted) {
  sketch::Support misses(predicted.length());
  const std::int32_t* from = counts.data();
  for (std::size_t word = 0; word < predicted.words().size(); ++word) {
    std::uint64_t missing = 0;
    for (std::uint64_t outside = ~predicted.words()[word] & predicted.valid_bits(word);
         outside != 0; outside &= outside - 1) {
      missing |= *from++ != 0 ? outside & (0 - outside) : 0;
    }
    misses.words()[word] = missing;
  }
  return misses;
}

}  // namespace

SketchFold::SketchFold(const sketch::SparseCode& code, std::uint64_t seed)
    : code_(code), seed_(seed) {
  const std::size_t cells = code.shape().cells();
  const std::size_t dense = code.numbers() - cells;
  lengths_ = {dense, cells, code.predicted().length() - dense};
}

base::Result<std::vector<std::int32_t>> SketchFold::fold(
    std::span<const std::int32_t> numbers) const {
  base::Result<sketch::SparsePart> part = code_.encode(numbers, seed_);
  if (!part.ok()) {
    return part.status();
  }
  std::vector<std::int32_t> folded = std::move(part->numbers);
  const std::size_t others = folded.size();
  folded.resize(length());
  write_counts(part->misses, code_.predicted(), std::span(folded).subspan(others));
  return folded;
}

base::Result<sketch::SparseSum> SketchFold::unfold(std::span<const std::int32_t> sums) const {
  SPILLWAY_CHECK(sums.size() == length());
  const std::span<const std::int32_t> numbers = sums.first(code_.numbers());
  const sketch::SparsePart part{{numbers.begin(), numbers.end()},
                                read_counts(sums.subspan(numbers.size()), code_.predicted())};
  return code_.decode(part, seed_);
}

}  // namespace spillway::collective
