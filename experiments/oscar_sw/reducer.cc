// SPDX-License-Identifier: Apache-2.0
#include "oscar_sw/reducer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/reference/sparse_reducer.h"
#include "common/guarded.h"

namespace sketch = spillway::codec::sketch;
namespace reference = sketch::reference;
namespace base = spillway::base;

struct experiment_reducer {
  reference::SparseJob job;
  std::unique_ptr<reference::SparseReducer> reducer;
};

namespace spillway::experiments {
namespace {

using MadeReducer = base::Result<std::unique_ptr<reference::SparseReducer>>;

MadeReducer make_sketch(std::string_view scheme, unsigned cells_percent,
                        const reference::SparseJob& job) {
  const bool is_median = scheme.starts_with("median");
  return reference::make_plain_sketch(
      job,
      {.reading = is_median ? reference::SketchReading::kMedian : reference::SketchReading::kPeeled,
       .cells_percent = cells_percent,
       .raw_bitmap = scheme.ends_with("-raw")});
}

MadeReducer make_reducer(std::string_view scheme, std::size_t size,
                         const reference::SparseJob& job) {
  const auto cells_percent = static_cast<unsigned>(size);
  if (scheme == "predicted-last" || scheme == "predicted-counter") {
    const auto rule = scheme == "predicted-last" ? sketch::PredictionRule::kLast
                                                 : sketch::PredictionRule::kCounter;
    return reference::make_predicted(job, {.rule = rule, .cells_percent = cells_percent});
  }
  if (scheme == "median" || scheme == "median-raw" || scheme == "peeled" ||
      scheme == "peeled-raw") {
    return make_sketch(scheme, cells_percent, job);
  }
  if (scheme == "union") {
    return reference::make_union(job);
  }
  if (scheme == "top-k") {
    return reference::make_top_k(job, size);
  }
  return base::invalid_argument("no scheme " + std::string(scheme) +
                                "; there are predicted-last, predicted-counter, median, "
                                "median-raw, peeled, peeled-raw, union and top-k");
}

base::Status open_reducer(std::string_view scheme, std::size_t size,
                          const reference::SparseJob& job, experiment_reducer** opened) {
  if (job.ranks == 0 || job.limit < 1 || job.limit > sketch::largest_number(job.ranks)) {
    return base::invalid_argument("it takes a rank or more, and a limit whose sum fits 32 bits");
  }
  MadeReducer made = make_reducer(scheme, size, job);
  if (!made.ok()) {
    return made.status();
  }
  *opened = new experiment_reducer{job, std::move(made).value()};
  return {};
}

base::Status reduce(experiment_reducer& opened, std::uint64_t seed, const std::int32_t* parts,
                    std::int32_t* sum, std::uint8_t* is_used, experiment_reduction& reduction) {
  const std::size_t length = opened.job.length;
  std::vector<std::vector<std::int32_t>> values;
  for (unsigned rank = 0; rank < opened.job.ranks; ++rank) {
    values.emplace_back(parts + rank * length, parts + (rank + 1) * length);
  }
  const auto outcome = opened.reducer->reduce(values, seed);
  if (!outcome.ok()) {
    return outcome.status();
  }
  std::copy(outcome->sum.begin(), outcome->sum.end(), sum);
  std::fill_n(is_used, opened.job.ranks * length, std::uint8_t{1});
  reduction = {outcome->part_bits, outcome->sum_bits, outcome->nonzero,
               outcome->predicted, outcome->misses,   0};
  for (unsigned rank = 0; rank < opened.job.ranks; ++rank) {
    outcome->unused[rank].for_each([&](std::size_t index) { is_used[rank * length + index] = 0; });
    reduction.unused += outcome->unused[rank].count();
  }
  return {};
}

}  // namespace
}  // namespace spillway::experiments

namespace experiments = spillway::experiments;

const char* experiment_reducer_open(const char* scheme, size_t size, size_t length, unsigned ranks,
                                    int32_t limit, experiment_reducer** reducer) {
  return experiments::guarded([&] {
    return experiments::open_reducer(scheme, size,
                                     {.length = length, .ranks = ranks, .limit = limit}, reducer);
  });
}

void experiment_reducer_close(experiment_reducer* reducer) {
  delete reducer;
}

const char* experiment_reduce(experiment_reducer* reducer, uint64_t seed, const int32_t* parts,
                              int32_t* sum, uint8_t* is_used, experiment_reduction* reduction) {
  return experiments::guarded(
      [&] { return experiments::reduce(*reducer, seed, parts, sum, is_used, *reduction); });
}
