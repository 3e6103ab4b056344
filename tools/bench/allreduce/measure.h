// SPDX-License-Identifier: Apache-2.0
//
// Times and checks all-reduces of one size at one rank of a benchmark, and summarises the times.
//
// After a barrier, iterations follow each other without one. An iteration's time is that of its
// slowest rank, divided by the operations in flight. Checked operations follow the timed ones and
// start from fresh inputs. So does every tolerant operation in place, because sums of sums would
// outgrow the codec; refilling and the barrier after it are not timed. Exact sums in place may
// overflow to infinity.
//
// Blocking; throws CommandError. One thread. Memory: 1 + in_flight buffers of the size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collective/operation.h"
#include "tools/bench/allreduce/data.h"
#include "tools/bench/allreduce/peers.h"

namespace spillway::bench {

// Parameters of a measurement, the same at every rank.
struct AllreduceWork {
  collective::DataType type = collective::DataType::kFloat32;
  collective::ReduceOp op = collective::ReduceOp::kSum;
  collective::Algorithm algorithm = collective::Algorithm::kAutomatic;
  std::optional<collective::Tolerance> tolerance{};  // empty: exact
  std::uint8_t priority = 3;
  std::vector<std::size_t> sizes{};  // bytes; multiples of the element size, at least one element
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

// The name that nccl-tests uses.
inline const char* redop_name(collective::ReduceOp op) {
  return op == collective::ReduceOp::kAverage ? "avg" : collective::reduce_op_name(op);
}

struct TimeSummary {
  double mean = 0.0;  // seconds, like the next five
  double min = 0.0;
  double max = 0.0;
  double p50 = 0.0;
  double p99 = 0.0;
  double deviation = 0.0;          // standard deviation
  double variation_percent = 0.0;  // deviation over mean
};

// Needs at least one time. Percentiles use the nearest rank, as in nccl-tests.
TimeSummary summarise_times(std::vector<double> seconds);

struct Bandwidth {
  double algorithm = 0.0;  // gigabytes per second: buffer size over time
  double bus = 0.0;        // times 2 (n - 1) / n: the load of each rank's link
};

Bandwidth allreduce_bandwidth(std::size_t bytes, double seconds, unsigned world);

// Totals of all ranks over the timed operations.
struct AllreduceTraffic {
  double wire_bytes = 0.0;
  double packets = 0.0;  // expected
  double trimmed = 0.0;
  double missing = 0.0;
  double repeated = 0.0;  // retransmitted, of those sent
  // For codecs with addable codes (collective::SumDelivery).
  double added = 0.0;
  double alone = 0.0;
  double flushed = 0.0;
  double clipped = 0.0;
  double operations = 0.0;  // at one rank
};

struct AllreducePass {
  std::vector<double> seconds{};  // per iteration
  std::optional<double> wrong{};  // wrong elements in the checks of all ranks
};

struct AllreduceRow {
  std::size_t bytes = 0;
  std::size_t count = 0;                                                // elements
  collective::Algorithm algorithm = collective::Algorithm::kAutomatic;  // the one used
  AllreducePass out_of_place{};
  AllreducePass in_place{};
  AllreduceTraffic traffic{};
  std::optional<double> nmse{};          // against sums in double precision
  std::optional<bool> replicas_agree{};  // all ranks ended with the same bytes
  // UDP payload bytes per element that crosses the network. An all-reduce moves 2 (n - 1) of each;
  // through servers the ranks send n, and what servers send is not counted here.
  std::optional<double> wire_bytes_per_element(unsigned world) const;
};

// Returns the same row at every rank.
AllreduceRow measure_allreduce(const AllreduceWork& work, std::size_t bytes,
                               const AllreduceData& data, AllreducePeers& peers);

}  // namespace spillway::bench
