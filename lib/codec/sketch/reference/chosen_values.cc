// SPDX-License-Identifier: Apache-2.0
//
// Reducers that send values with their indices: those of the union, or each rank's largest.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "codec/sketch/reference/sparse_reducer.h"

namespace spillway::codec::sketch::reference {
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

}  // namespace spillway::codec::sketch::reference
