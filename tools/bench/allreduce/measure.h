// SPDX-License-Identifier: Apache-2.0
//
// The measurement behind `bench allreduce`: what the ranks exchange beside it, the inputs and the
// expected results, and the timing and checking of all-reduces of one size.
//
// Blocking; throws CommandError. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/operation.h"
#include "collective/report.h"
#include "comm/communicator.h"

namespace spillway::bench {

// ------------------------------------------------------------------ exchange between ranks

// The exchange of a benchmark's ranks beside the measured operations, as small exact operations
// of the same communicator. All ranks must make the same calls in the same order.
//
// Blocking; throws CommandError, which names the rank at fault, when the communicator has failed.
// One thread.

class AllreducePeers {
 public:
  explicit AllreducePeers(comm::Communicator& communicator) : communicator_(communicator) {}

  std::uint16_t rank() const { return communicator_.rank(); }
  std::uint16_t world() const { return communicator_.world(); }

  void barrier();
  // Replaces every value by the maximum, or the sum, over all ranks.
  void take_maximum(std::span<double> values);
  void add_up(std::span<double> values);
  // True if all ranks pass true.
  bool do_all(bool yes);
  // Returns rank 0's text, cut to kTextBytes.
  std::string from_first(const std::string& text);
  static constexpr std::size_t kTextBytes = 256;

  // Submits a measured operation.
  std::shared_ptr<comm::Request> submit(const collective::Operation& operation);

 private:
  void fold(collective::ReduceOp op, std::span<double> values);
  // In place.
  void run(collective::Operation operation, void* buffer);

  comm::Communicator& communicator_;
};

// Waits for the request to end; throws CommandError if it failed.
void wait_for(const comm::Request& request);

// ------------------------------------------------------------------ inputs and expected results

// The inputs of a benchmark's ranks, which every rank can generate for all ranks, and the expected
// result of their all-reduce.
//
// Floating-point inputs are Gaussian, integers uniform. Elements come from one table, in blocks
// that start at a random place in it. That is as fast as copying, and reveals blocks that end up in
// the wrong place or come from the wrong rank.
//
// Immutable: any thread. Memory: the table, up to about 300 KiB; while checking, a block per rank.

class AllreduceData {
 public:
  explicit AllreduceData(collective::DataType type);

  // Writes the first `count` elements of a rank's input.
  void fill(std::uint16_t rank, std::size_t count, std::uint8_t* to) const;

  struct Deviation {
    double wrong = 0.0;   // elements
    double error = 0.0;   // squared, against double-precision sums
    double energy = 0.0;  // of those sums
  };
  // Counts wrong elements if nothing may be lost. If the order of additions is known or irrelevant,
  // an element is wrong when a bit differs. Otherwise it is wrong when it is off by more than
  // additions in any order can be. Error and energy are computed for floating-point types only,
  // over at most about kSampled evenly spread elements.
  Deviation compare(const collective::Operation& operation, collective::Algorithm used,
                    std::uint16_t world, const std::uint8_t* result) const;

  static constexpr std::size_t kSampled = 4'000'000;

 private:
  static constexpr std::size_t kBlock = 4096;    // elements
  static constexpr std::size_t kTable = 32'768;  // possible starts of a block

  struct Reference;
  const std::uint8_t* block_of(std::uint16_t rank, std::size_t block) const;
  void add_up(const collective::Operation& operation, std::size_t elements,
              Reference& reference) const;
  static Deviation measure(const Reference& reference, const std::vector<double>& values,
                           double bound);

  collective::DataType type_;
  std::size_t element_;
  std::vector<std::uint8_t> table_;
};

// ------------------------------------------------------------------ the measurement

// Times and checks all-reduces of one size at one rank of a benchmark, and summarises the times.
//
// After a barrier, iterations follow each other without one. An iteration's time is that of its
// slowest rank, divided by the operations in flight. Checked operations follow the timed ones and
// start from fresh inputs. So does every tolerant operation in place, because sums of sums would
// outgrow the codec; refilling and the barrier after it are not timed. Exact sums in place may
// overflow to infinity.
//
// Blocking; throws CommandError. One thread. Memory: 1 + in_flight buffers of the size.

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
