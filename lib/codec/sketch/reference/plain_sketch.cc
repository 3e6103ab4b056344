// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "codec/sketch/peeling.h"
#include "codec/sketch/reference/sparse_reducer.h"

namespace spillway::codec::sketch::reference {
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

}  // namespace spillway::codec::sketch::reference
