// SPDX-License-Identifier: Apache-2.0
#include "collective/entropy/sketch_content.h"

#include <bit>
#include <utility>

#include "base/check.h"

namespace spillway::collective {

namespace {

namespace sketch = codec::sketch;

// More misses than this take more bits than coded zeros do; with more numbers there is too little
// to save.
constexpr unsigned kMostMissesPercent = 25;
constexpr unsigned kMostNumbersPercent = 50;

std::shared_ptr<const sketch::SparseCode> code_for(const TensorNumbers& tensor,
                                                   std::shared_ptr<const sketch::SparseCode> last) {
  if (last) {
    return last;
  }
  // validate() has seen that the tensor is not too long.
  return std::make_shared<const sketch::SparseCode>(
      sketch::SparseCode::make(tensor.operation.count,
                               {.contributors = tensor.group.world,
                                .most_misses_percent = kMostMissesPercent,
                                .most_numbers_percent = kMostNumbersPercent})
          .value());
}

constexpr bool is_of(std::uint8_t section, FoldSection wanted) {
  return section == static_cast<std::uint8_t>(wanted);
}

}  // namespace

SketchContent::SketchContent(TensorNumbers& tensor, std::shared_ptr<const sketch::SparseCode> last,
                             std::uint64_t seed)
    : tensor_(tensor),
      plain_(tensor),
      code_(code_for(tensor, std::move(last))),
      fold_(*code_, seed),
      grid_(fold_.lengths(), tensor.grid.block_values()) {
  delivery_.predicted = fold_.lengths()[static_cast<std::size_t>(FoldSection::kDense)];
}

std::span<std::int32_t> SketchContent::numbers() {
  return fold_.is_dense() ? plain_.numbers() : std::span(folded_);
}

codec::entropy::Alphabet SketchContent::alphabet(std::uint8_t section, std::uint16_t ranks) const {
  if (is_of(section, FoldSection::kDense)) {
    return plain_.alphabet(section, ranks);
  }
  // A cell sums up any number of values.
  return is_of(section, FoldSection::kCells)
             ? codec::entropy::Alphabet::ranges()
             : alphabet_of(1, ranks, tensor_.operation.count / tensor_.group.world);
}

bool SketchContent::is_like_values(std::uint8_t section) const {
  return is_of(section, FoldSection::kDense);
}

std::size_t SketchContent::values_of(const ChunkPiece& piece) const {
  return is_of(piece.section, FoldSection::kCells) ? 0 : piece.values;
}

void SketchContent::prepare(const BlockRun& blocks) {
  if (fold_.is_dense()) {
    plain_.prepare(blocks);
  }
}

void SketchContent::deliver(const BlockRun& blocks) {
  if (fold_.is_dense()) {
    plain_.deliver(blocks);
  }
}

void SketchContent::fold() {
  plain_.prepare({0, 1, tensor_.grid.blocks()});
  // Numbers of up to 16 bits from up to 256 ranks always add up.
  folded_ = fold_.fold(tensor_.numbers).value();
}

bool SketchContent::has_unfold() const {
  return !fold_.is_dense() || is_named();
}

base::Status SketchContent::unfold() {
  if (fold_.is_dense()) {
    // The numbers are not needed any more.
    advance({std::move(tensor_.numbers), sketch::Support(tensor_.operation.count)});
    return {};
  }
  const base::Result<sketch::SparseSum> sum = fold_.unfold(folded_);
  if (!sum.ok()) {
    return sum.status();
  }
  for (std::size_t block = 0; block < tensor_.grid.blocks(); ++block) {
    tensor_.write(block, sum->values);
  }
  sum->unrecovered.for_each([this](std::size_t index) { tensor_.add_to_residual(index); });
  delivery_.misses = sum->misses;
  delivery_.unrecovered = sum->unrecovered.count();
  advance(*sum);
  return {};
}

// A step with NaN says nothing about the next one.
void SketchContent::advance(const sketch::SparseSum& sum) {
  if (!tensor_.is_finite) {
    next_ = RememberedSketch(code_);
    return;
  }
  sketch::SparseCode next = *code_;
  next.advance(sum);
  next_ = RememberedSketch(std::make_shared<const sketch::SparseCode>(std::move(next)));
}

void SketchContent::conclude(TensorCodes& codes, EntropyDelivery& report) {
  codes.sketch = std::move(next_);
  report.sketch = delivery_;
}

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
