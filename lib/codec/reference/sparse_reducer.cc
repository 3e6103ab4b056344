// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/sparse_reducer.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "codec/sketch/count_sketch.h"
#include "codec/sketch/support.h"

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

// ------------------------------------------------------------------ plain sketches

namespace {

std::int32_t median(std::int32_t a, std::int32_t b, std::int32_t c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

class PlainSketch final : public SparseReducer {
 public:
  PlainSketch(const SparseJob& job, const PlainSketchOptions& options)
      : job_(job), options_(options) {}

  base::Result<SparseOutcome> reduce(std::span<const std::vector<std::int32_t>> parts,
                                     std::uint64_t seed) override {
    const Support keys = union_of(parts);
    const std::size_t count = keys.count();
    // Sized for at least three keys, so that every hash has a cell.
    const CellHash hash(SketchShape::with_cells(Hashing::kElement, std::max<std::size_t>(count, 3),
                                                options_.cells_percent),
                        seed);
    std::vector<std::int32_t> cells(hash.shape().cells());
    for (const auto& part : parts) {
      add_to_sketch(hash, Support::of_nonzero(part), part, cells);
    }
    SparseOutcome outcome{.sum = std::vector<std::int32_t>(job_.length),
                          .unused = {parts.size(), Support(job_.length)},
                          .nonzero = count,
                          .misses = count};
    read(hash, keys, cells, outcome.sum);
    const std::uint64_t cell_bits = cells.size() * number_bits(job_, job_.ranks);
    outcome.part_bits = part_index_bits(parts) + cell_bits;
    outcome.sum_bits = index_bits(keys) + cell_bits;
    return outcome;
  }

 private:
  void read(const CellHash& hash, const Support& keys, std::span<const std::int32_t> cells,
            std::span<std::int32_t> sum) const {
    Support left = keys;
    if (options_.reading == SketchReading::kPeeled) {
      left = peel(hash, keys, cells, {}, sum).value();  // cannot fail: the cells are of these keys
    }
    hash.for_each(left, [&](std::size_t index, const Places& places) {
      sum[index] = median(places.with_sign(0, cells[places.cells[0]]),
                          places.with_sign(1, cells[places.cells[1]]),
                          places.with_sign(2, cells[places.cells[2]]));
    });
  }

  std::uint64_t index_bits(const Support& support) const {
    return options_.raw_bitmap ? job_.length : support_bits(support, Support(job_.length));
  }

  std::uint64_t part_index_bits(std::span<const std::vector<std::int32_t>> parts) const {
    std::uint64_t bits = 0;
    for (const auto& part : parts) {
      bits += index_bits(Support::of_nonzero(part));
    }
    return bits / parts.size();
  }

  SparseJob job_;
  PlainSketchOptions options_;
};

}  // namespace

std::unique_ptr<SparseReducer> make_plain_sketch(const SparseJob& job,
                                                 const PlainSketchOptions& options) {
  return std::make_unique<PlainSketch>(job, options);
}

// ------------------------------------------------------------------ values with their indices: of
// the union, or each rank's largest

namespace {

class UnionValues final : public SparseReducer {
 public:
  explicit UnionValues(const SparseJob& job) : job_(job) {}

  base::Result<SparseOutcome> reduce(std::span<const std::vector<std::int32_t>> parts,
                                     std::uint64_t /*seed*/) override {
    const Support keys = union_of(parts);
    const Support nothing(job_.length);
    const std::size_t count = keys.count();
    SparseOutcome outcome{.sum = true_sum(parts),
                          .unused = {parts.size(), nothing},
                          .nonzero = count,
                          .misses = count};
    for (const auto& part : parts) {
      outcome.part_bits += support_bits(Support::of_nonzero(part), nothing);
    }
    outcome.part_bits = outcome.part_bits / parts.size() + count * number_bits(job_, 1);
    outcome.sum_bits = support_bits(keys, nothing) + count * number_bits(job_, job_.ranks);
    return outcome;
  }

 private:
  SparseJob job_;
};

// The `kept` largest non-zero magnitudes; among equal ones the first.
Support largest_of(std::span<const std::int32_t> values, std::size_t kept) {
  std::vector<std::size_t> order;
  Support::of_nonzero(values).for_each([&](std::size_t index) { order.push_back(index); });
  const std::size_t count = std::min(kept, order.size());
  const auto larger = [values](std::size_t a, std::size_t b) {
    const auto left = std::abs(std::int64_t{values[a]});
    const auto right = std::abs(std::int64_t{values[b]});
    return left != right ? left > right : a < b;
  };
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                   larger);
  Support largest(values.size());
  std::for_each_n(order.begin(), count, [&](std::size_t index) { largest.insert(index); });
  return largest;
}

class TopK final : public SparseReducer {
 public:
  TopK(const SparseJob& job, std::size_t kept) : job_(job), kept_(kept) {}

  base::Result<SparseOutcome> reduce(std::span<const std::vector<std::int32_t>> parts,
                                     std::uint64_t /*seed*/) override {
    const Support nothing(job_.length);
    SparseOutcome outcome{.sum = std::vector<std::int32_t>(job_.length),
                          .nonzero = union_of(parts).count()};
    Support sent(job_.length);
    for (const auto& part : parts) {
      const Support largest = largest_of(part, kept_);
      largest.for_each([&](std::size_t index) {
        outcome.sum[index] = wrapping_add(outcome.sum[index], part[index]);
      });
      outcome.unused.push_back(Support::of_nonzero(part).without(largest));
      outcome.part_bits += support_bits(largest, nothing) + largest.count() * number_bits(job_, 1);
      sent |= largest;
    }
    outcome.part_bits /= parts.size();
    outcome.misses = sent.count();
    outcome.sum_bits = support_bits(sent, nothing) + outcome.misses * number_bits(job_, job_.ranks);
    return outcome;
  }

 private:
  SparseJob job_;
  std::size_t kept_;
};

}  // namespace

std::unique_ptr<SparseReducer> make_union(const SparseJob& job) {
  return std::make_unique<UnionValues>(job);
}

std::unique_ptr<SparseReducer> make_top_k(const SparseJob& job, std::size_t kept) {
  return std::make_unique<TopK>(job, kept);
}

// ------------------------------------------------------------------ predicted supports

namespace {

class Predicted final : public SparseReducer {
 public:
  Predicted(const SparseJob& job, SparseCode code) : job_(job), code_(std::move(code)) {}

  base::Result<SparseOutcome> reduce(std::span<const std::vector<std::int32_t>> parts,
                                     std::uint64_t seed) override {
    SparseOutcome outcome{.nonzero = union_of(parts).count(),
                          .predicted = code_.predicted().count()};
    SparsePart sum{std::vector<std::int32_t>(code_.numbers()), Support(job_.length)};
    for (const auto& values : parts) {
      const auto part = code_.encode(values, seed);
      if (!part.ok()) {
        return part.status();
      }
      outcome.part_bits += support_bits(part->misses, code_.predicted());
      sum.add(*part);
    }
    const auto found = code_.decode(sum, seed);
    if (!found.ok()) {
      return found.status();
    }
    outcome.misses = found->misses;
    outcome.part_bits = outcome.part_bits / parts.size() + numbers_bits(1);
    outcome.sum_bits = support_bits(sum.misses, code_.predicted()) + numbers_bits(job_.ranks);
    outcome.unused.assign(parts.size(), found->unrecovered);
    code_.advance(*found);
    outcome.sum = found->values;
    return outcome;
  }

 private:
  // Cells always have the width of sums.
  std::uint64_t numbers_bits(unsigned ranks) const {
    return code_.predicted().count() * number_bits(job_, ranks) +
           code_.shape().cells() * number_bits(job_, job_.ranks);
  }

  SparseJob job_;
  SparseCode code_;
};

}  // namespace

base::Result<std::unique_ptr<SparseReducer>> make_predicted(const SparseJob& job,
                                                            SparseOptions options) {
  options.contributors = job.ranks;
  base::Result<SparseCode> code = SparseCode::make(job.length, options);
  if (!code.ok()) {
    return code.status();
  }
  return std::unique_ptr<SparseReducer>(std::make_unique<Predicted>(job, std::move(code).value()));
}

}  // namespace spillway::codec::sketch::reference
