// SPDX-License-Identifier: Apache-2.0
#include "asc/hops.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codec/entropy/probability_table.h"
#include "codec/reference/integer_coder.h"
#include "collective/entropy/chunk_layout.h"
#include "collective/entropy/code_cache.h"
#include "common/guarded.h"

namespace base = spillway::base;
namespace entropy = spillway::codec::entropy;
namespace reference = spillway::codec::reference;
namespace collective = spillway::collective;

namespace {

using Integers = std::vector<std::int32_t>;
using Coders = std::vector<std::unique_ptr<reference::IntegerCoder>>;

}  // namespace

struct experiment_hops {
  experiment_hops(std::uint16_t ranks_, std::size_t length_)
      : ranks(ranks_), length(length_), grid(length_, ranks_) {
    for (unsigned chunk = 0; chunk < ranks; chunk += chunks_apart()) {
      for (unsigned step = 0; step < ranks; ++step) {
        coders[chunk].push_back(reference::all_integer_coders());
      }
    }
  }

  // Between two chunks that are followed.
  unsigned chunks_apart() const { return std::max(ranks / EXPERIMENT_MOST_CHUNKS, 1); }

  std::uint16_t ranks;
  std::size_t length;
  collective::BlockGrid grid;
  // By chunk that is followed, and step; that with one table for all steps is the first's.
  std::map<unsigned, std::vector<Coders>> coders{};
  std::vector<std::uint32_t> costs{};  // by block, of the sums so far
};

namespace spillway::experiments {
namespace {

constexpr std::array<collective::ChunkRule, EXPERIMENT_CHUNK_RULES> kRules = {
    collective::ChunkRule::kEqual, collective::ChunkRule::kBalanced,
    collective::ChunkRule::kStriped};

// The sum of these ranks' numbers, of which `first` is the first of a row round the ring.
Integers sum_of(const experiment_hops& hops, const std::int32_t* parts, unsigned first,
                unsigned ranks) {
  Integers sum(hops.length);
  for (unsigned i = 0; i < ranks; ++i) {
    const std::int32_t* const part = parts + (first + i) % hops.ranks * hops.length;
    for (std::size_t k = 0; k < sum.size(); ++k) {
      sum[k] += part[k];
    }
  }
  return sum;
}

Integers chunk_of(const experiment_hops& hops, const Integers& values, unsigned chunk) {
  const collective::BlockRun run =
      collective::share_out_blocks(hops.grid, {.chunks = hops.ranks}, {})[chunk];
  Integers found;
  for (std::size_t i = 0; i < run.count; ++i) {
    const collective::Extent extent = hops.grid.extent_of(run.block(i));
    found.insert(found.end(), values.begin() + static_cast<std::ptrdiff_t>(extent.first),
                 values.begin() + static_cast<std::ptrdiff_t>(extent.first + extent.count));
  }
  return found;
}

entropy::Histogram counts_of(const Integers& values) {
  entropy::Histogram counts(entropy::Alphabet::ranges());
  counts.add(std::span<const std::int32_t>(values));
  return counts;
}

// Bits of every block by the table of all of them.
std::vector<std::uint32_t> block_costs(const experiment_hops& hops, const Integers& values) {
  const std::vector<std::uint32_t> costs_q8 =
      entropy::ProbabilityTable::of_counts(counts_of(values)).costs_q8();
  const entropy::Alphabet alphabet = entropy::Alphabet::ranges();
  std::vector<std::uint32_t> costs;
  for (std::size_t block = 0; block < hops.grid.blocks(); ++block) {
    const collective::Extent extent = hops.grid.extent_of(block);
    std::uint64_t cost = 0;
    for (std::size_t i = extent.first; i < extent.first + extent.count; ++i) {
      cost += costs_q8[alphabet.code(entropy::fold(values[i])).symbol];
    }
    costs.push_back(static_cast<std::uint32_t>(cost / 256));
  }
  return costs;
}

double imbalance_of(const std::vector<collective::BlockRun>& chunks,
                    const std::vector<std::uint32_t>& costs) {
  double longest = 0.0;
  double total = 0.0;
  for (const collective::BlockRun& run : chunks) {
    double bits = 0.0;
    for (std::size_t i = 0; i < run.count; ++i) {
      bits += costs[run.block(i)];
    }
    longest = std::max(longest, bits);
    total += bits;
  }
  return total > 0.0 ? longest * static_cast<double>(chunks.size()) / total : 1.0;
}

void share_out(experiment_hops& hops, const std::int32_t* parts,
               double imbalance[EXPERIMENT_CHUNK_RULES][2]) {
  const std::vector<std::uint32_t> own = block_costs(hops, sum_of(hops, parts, 0, 1));
  const std::vector<std::uint32_t> sums = block_costs(hops, sum_of(hops, parts, 0, hops.ranks));
  for (std::size_t rule = 0; rule < kRules.size(); ++rule) {
    const auto chunks = collective::share_out_blocks(
        hops.grid, {.chunks = hops.ranks, .rule = kRules[rule]}, hops.costs);
    imbalance[rule][0] = imbalance_of(chunks, own);
    imbalance[rule][1] = imbalance_of(chunks, sums);
  }
  const bool is_first = hops.costs.empty();
  hops.costs.resize(sums.size());
  for (std::size_t block = 0; block < sums.size(); ++block) {
    hops.costs[block] =
        is_first ? sums[block] : collective::next_cost(hops.costs[block], sums[block]);
  }
}

// CPU time of the calling thread.
double seconds_used() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Codes the values and takes them back; `seconds` are added to.
base::Result<std::size_t> coded_bytes(reference::IntegerCoder& coder, const Integers& values,
                                      double seconds[EXPERIMENT_HOP_WORKS]) {
  Integers decoded(values.size());
  const double begin = seconds_used();
  const std::vector<std::uint8_t> bytes = coder.encode(values);
  const double encoded_at = seconds_used();
  const base::Status status = coder.decode(bytes, decoded);
  const double decoded_at = seconds_used();
  coder.learn(values);
  seconds[0] += encoded_at - begin;
  seconds[1] += decoded_at - encoded_at;
  seconds[2] += seconds_used() - decoded_at;
  if (!status.ok()) {
    return status;
  }
  if (decoded != values) {
    return base::Status(base::StatusCode::kInternal,
                        std::string(coder.name()) + " did not give back what it coded");
  }
  return bytes.size();
}

// A chunk to which so many ranks have added, by its coders of this step; `bits` and `seconds` are
// added to.
base::Status code_chunk(std::vector<Coders>& coders, const Integers& values, unsigned step,
                        double* bits, double seconds[][EXPERIMENT_HOP_WORKS]) {
  const std::size_t ranks = coders.size();
  *bits += counts_of(values).entropy_bits();
  for (const auto& own : coders[step - 1]) {
    const auto same = [&](const auto& coder) { return coder->name() == own->name(); };
    reference::IntegerCoder& coder = own->name() == "one-table"
                                         ? **std::find_if(coders[0].begin(), coders[0].end(), same)
                                         : *own;
    bits += ranks;
    ++seconds;
    const base::Result<std::size_t> bytes = coded_bytes(coder, values, *seconds);
    if (!bytes.ok()) {
      return bytes.status();
    }
    *bits += 8.0 * static_cast<double>(*bytes);
  }
  return {};
}

// Collects the numbers of the chunks that are followed; returns how many values each of their ways
// has.
base::Result<std::size_t> code_chunks(experiment_hops& hops, const std::int32_t* parts,
                                      double* bits, double seconds[][EXPERIMENT_HOP_WORKS]) {
  std::size_t count = 0;
  for (auto& [chunk, coders] : hops.coders) {
    for (unsigned step = 1; step <= hops.ranks; ++step) {
      const Integers values = chunk_of(hops, sum_of(hops, parts, chunk, step), chunk);
      count += step == 1 ? values.size() : 0;
      const base::Status status = code_chunk(coders, values, step, bits + (step - 1), seconds);
      if (!status.ok()) {
        return status;
      }
    }
  }
  return std::max<std::size_t>(count, 1);
}

}  // namespace
}  // namespace spillway::experiments

const char* experiment_hop_coders(void) {
  static const std::string names = [] {
    std::string list = "entropy";
    for (const auto& coder : reference::all_integer_coders()) {
      list.append(",").append(coder->name());
    }
    return list;
  }();
  return names.c_str();
}

const char* experiment_hops_open(unsigned ranks, size_t length, experiment_hops** hops) {
  return spillway::experiments::guarded([&]() -> base::Status {
    if (ranks < 2 || ranks > collective::kMostEntropyRanks || length == 0) {
      return base::invalid_argument("it takes two ranks or more, and a value");
    }
    *hops = new experiment_hops(static_cast<std::uint16_t>(ranks), length);
    return {};
  });
}

void experiment_hops_close(experiment_hops* hops) {
  delete hops;
}

const char* experiment_hops_step(experiment_hops* hops, const int32_t* parts, double* bits,
                                 double seconds[][EXPERIMENT_HOP_WORKS],
                                 double imbalance[EXPERIMENT_CHUNK_RULES][2]) {
  return spillway::experiments::guarded([&]() -> base::Status {
    const std::size_t rows = hops->coders[0][0].size() + 1;
    const std::span all_bits(bits, rows * hops->ranks);
    const std::span works(*seconds, rows * EXPERIMENT_HOP_WORKS);
    std::fill(all_bits.begin(), all_bits.end(), 0.0);
    std::fill(works.begin(), works.end(), 0.0);
    const auto count = spillway::experiments::code_chunks(*hops, parts, bits, seconds);
    if (!count.ok()) {
      return count.status();
    }
    for (double& sum : all_bits) {
      sum /= static_cast<double>(*count);
    }
    for (double& work : works) {
      work /= static_cast<double>(*count * hops->ranks);
    }
    spillway::experiments::share_out(*hops, parts, imbalance);
    return {};
  });
}
