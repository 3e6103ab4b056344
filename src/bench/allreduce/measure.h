// SPDX-License-Identifier: Apache-2.0
//
// All-reduces of one size at one rank of a benchmark, timed and checked, and what their times come
// to.
//
// After a barrier, iterations follow each other without one. The time of an iteration is that of
// the rank where it took longest, divided by the operations in flight. Checked operations come
// behind the timed ones and start from fresh inputs; so does every tolerant operation in place,
// because sums of sums would grow beyond what can be coded (a barrier follows, and neither is
// timed). Exact sums in place may well end as infinities.
//
// Blocking; throws CommandError. One thread. Memory: 1 + in_flight buffers of the size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "bench/allreduce/data.h"
#include "bench/allreduce/peers.h"
#include "collective/operation.h"

namespace spillway::bench {

// What is measured; the same at every rank.
struct AllreduceWork {
  collective::DataType type = collective::DataType::kFloat32;
  collective::ReduceOp op = collective::ReduceOp::kSum;
  collective::Algorithm algorithm = collective::Algorithm::kAutomatic;
  std::optional<collective::Tolerance> tolerance{};  // nothing: exact
  std::uint8_t priority = 3;
  std::vector<std::size_t> sizes{};  // bytes; whole elements, at least one
  unsigned iterations = 20;
  unsigned warmup = 5;
  unsigned checks = 1;     // operations whose results are compared
  unsigned in_flight = 1;  // operations at once

  collective::Operation operation_of(std::size_t bytes) const {
    collective::Operation operation;
    operation.type = type;
    operation.op = op;
    operation.algorithm = algorithm;
    operation.tolerance = tolerance;
    operation.count = bytes / collective::element_size(type);
    operation.priority = priority;
    return operation;
  }
};

// As nccl-tests calls it.
inline const char* redop_name(collective::ReduceOp op) {
  return op == collective::ReduceOp::kAverage ? "avg" : collective::reduce_op_name(op);
}

struct TimeSummary {
  double mean = 0.0;  // seconds, all of them but the last
  double min = 0.0;
  double max = 0.0;
  double p50 = 0.0;
  double p99 = 0.0;
  double deviation = 0.0;          // standard
  double variation_percent = 0.0;  // deviation over mean
};

// At least one time. Percentiles are the nearest rank, as in nccl-tests.
TimeSummary summarise_times(std::vector<double> seconds);

struct Bandwidth {
  double algorithm = 0.0;  // gigabytes a second: the buffer over the time
  double bus = 0.0;        // times 2 (n - 1) / n: what each rank's link carries
};

Bandwidth allreduce_bandwidth(std::size_t bytes, double seconds, unsigned world);

// What all ranks sent and got in the timed operations.
struct AllreduceTraffic {
  double wire_bytes = 0.0;
  double packets = 0.0;  // that were to come
  double trimmed = 0.0;
  double missing = 0.0;
  double repeated = 0.0;  // of those sent
  // Of codes that can be added (collective::SumDelivery).
  double added = 0.0;
  double alone = 0.0;
  double flushed = 0.0;
  double clipped = 0.0;
  double operations = 0.0;  // at one rank
};

struct AllreducePass {
  std::vector<double> seconds{};  // of each iteration
  std::optional<double> wrong{};  // elements, of all ranks and checks
};

struct AllreduceRow {
  std::size_t bytes = 0;
  std::size_t count = 0;                                                // elements
  collective::Algorithm algorithm = collective::Algorithm::kAutomatic;  // that was used
  AllreducePass out_of_place{};
  AllreducePass in_place{};
  AllreduceTraffic traffic{};
  std::optional<double> nmse{};          // against sums in double precision
  std::optional<bool> replicas_agree{};  // whether all ranks ended with the same bytes
  // UDP payload for every element that crosses the network: an all-reduce moves 2 (n - 1) of each.
  // Through servers the ranks send n; what servers send is not counted here.
  std::optional<double> wire_bytes_per_element(unsigned world) const;
};

// The same row at every rank.
AllreduceRow measure_allreduce(const AllreduceWork& work, std::size_t bytes,
                               const AllreduceData& data, AllreducePeers& peers);

}  // namespace spillway::bench
