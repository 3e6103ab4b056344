// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "codec/sketch/reference/sparse_reducer.h"

namespace spillway::codec::sketch::reference {
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
