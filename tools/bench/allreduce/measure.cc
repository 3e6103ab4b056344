// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/allreduce/measure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/clock.h"
#include "base/random.h"
#include "collective/reduction.h"
#include "tools/bench/checks/crc32c.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {

// ------------------------------------------------------------------ exchange between ranks

using collective::DataType;
using collective::Kind;
using collective::Operation;
using collective::ReduceOp;

void wait_for(const comm::Request& request) {
  throw_unless_ok(*request.wait(std::nullopt));
}

std::shared_ptr<comm::Request> AllreducePeers::submit(const Operation& operation) {
  return value_or_throw(communicator_.submit(operation));
}

void AllreducePeers::run(Operation operation, void* buffer) {
  operation.input = operation.output = buffer;
  wait_for(*submit(operation));
}

void AllreducePeers::barrier() {
  Operation operation;
  operation.kind = Kind::kBarrier;
  run(operation, nullptr);
}

void AllreducePeers::fold(ReduceOp op, std::span<double> values) {
  Operation operation;
  operation.type = DataType::kFloat64;
  operation.op = op;
  operation.count = values.size();
  run(operation, values.data());
}

void AllreducePeers::take_maximum(std::span<double> values) {
  fold(ReduceOp::kMax, values);
}

void AllreducePeers::add_up(std::span<double> values) {
  fold(ReduceOp::kSum, values);
}

bool AllreducePeers::do_all(bool yes) {
  double refusals = yes ? 0.0 : 1.0;
  add_up({&refusals, 1});
  return refusals == 0.0;
}

std::string AllreducePeers::from_first(const std::string& text) {
  std::array<char, kTextBytes + 1> bytes{};
  std::copy_n(text.data(), std::min(text.size(), kTextBytes), bytes.data());
  Operation operation;
  operation.kind = Kind::kBroadcast;
  operation.type = DataType::kInt32;
  operation.count = kTextBytes / collective::element_size(operation.type);
  run(operation, bytes.data());
  return bytes.data();
}

// ------------------------------------------------------------------ inputs and expected results

namespace {

using collective::Algorithm;
using collective::DataType;
using collective::ReduceOp;

constexpr std::uint64_t kTableKey = 0x414C4C5245445543ULL;
constexpr std::uint64_t kPlaceKey = 0x504C414345532121ULL;

// The distance from 1 to the next larger number of the type.
double epsilon_of(DataType type) {
  switch (type) {
    case DataType::kFloat64:
      return 0x1p-52;
    case DataType::kFloat16:
      return 0x1p-10;
    case DataType::kBfloat16:
      return 0x1p-7;
    default:
      return 0x1p-23;
  }
}

void draw_gaussians(DataType type, std::size_t count, std::uint8_t* to) {
  base::RandomSequence random(kTableKey);
  const std::size_t element = collective::element_size(type);
  for (std::size_t i = 0; i < count; ++i) {
    const double value = random.next_gaussian();
    const auto rounded = static_cast<float>(value);
    if (type == DataType::kFloat64) {
      std::memcpy(to + i * element, &value, element);
    } else {
      collective::convert_from_float(type, &rounded, 1, to + i * element);
    }
  }
}

void draw_words(std::size_t bytes, std::uint8_t* to) {
  base::RandomSequence random(kTableKey);
  for (std::size_t i = 0; i < bytes; i += sizeof(std::uint32_t)) {
    const std::uint32_t word = random.next_word();
    std::memcpy(to + i, &word, sizeof(word));
  }
}

std::vector<double> to_doubles(DataType type, const std::uint8_t* from, std::size_t count) {
  std::vector<double> values(count);
  if (type == DataType::kFloat64) {
    std::memcpy(values.data(), from, count * sizeof(double));
    return values;
  }
  std::vector<float> floats(count);
  collective::convert_to_float(type, from, count, floats.data());
  std::copy(floats.begin(), floats.end(), values.begin());
  return values;
}

double fold(ReduceOp op, double sum, double next) {
  switch (op) {
    case ReduceOp::kMin:
      return std::min(sum, next);
    case ReduceOp::kMax:
      return std::max(sum, next);
    default:
      return sum + next;
  }
}

// How far a result may differ from the reference.
enum class Agreement : std::uint8_t {
  kBits,      // bit for bit: the order of additions is known or irrelevant
  kRounding,  // by the rounding of additions in any order
  kAny,       // no limit: the caller allowed losses
};

Agreement agreement_of(const collective::Operation& operation, Algorithm used) {
  if (operation.tolerance) {
    return Agreement::kAny;
  }
  const bool adds = operation.op == ReduceOp::kSum || operation.op == ReduceOp::kAverage;
  const bool has_one_answer = !collective::is_floating(operation.type) || !adds ||
                              used == Algorithm::kDirect || used == Algorithm::kServers;
  return has_one_answer ? Agreement::kBits : Agreement::kRounding;
}

double differing_elements(const std::uint8_t* a, const std::uint8_t* b, std::size_t element,
                          std::size_t count) {
  if (std::memcmp(a, b, element * count) == 0) {
    return 0.0;
  }
  double differing = 0.0;
  for (std::size_t i = 0; i < count * element; i += element) {
    differing += std::memcmp(a + i, b + i, element) == 0 ? 0.0 : 1.0;
  }
  return differing;
}

}  // namespace

// Reference for one block.
struct AllreduceData::Reference {
  std::vector<const std::uint8_t*> sources;  // by rank
  std::vector<double> values;                // reduced in double precision
  std::vector<double> magnitudes;            // sums of absolute values; averaged if the values are
};

AllreduceData::AllreduceData(DataType type)
    : type_(type), element_(collective::element_size(type)), table_((kTable + kBlock) * element_) {
  if (collective::is_floating(type)) {
    draw_gaussians(type, kTable + kBlock, table_.data());
  } else {
    draw_words(table_.size(), table_.data());
  }
}

const std::uint8_t* AllreduceData::block_of(std::uint16_t rank, std::size_t block) const {
  const base::RandomBlock words = base::random_block(
      kPlaceKey,
      {rank, static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32)});
  return table_.data() + words[0] % kTable * element_;
}

void AllreduceData::fill(std::uint16_t rank, std::size_t count, std::uint8_t* to) const {
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t elements = std::min(kBlock, count - first);
    std::memcpy(to + first * element_, block_of(rank, first / kBlock), elements * element_);
  }
}

void AllreduceData::add_up(const collective::Operation& operation, std::size_t elements,
                           Reference& reference) const {
  const std::size_t world = reference.sources.size();
  reference.values = to_doubles(type_, reference.sources.front(), elements);
  reference.magnitudes.assign(elements, 0.0);
  for (std::size_t rank = 0; rank < world; ++rank) {
    const std::vector<double> next = to_doubles(type_, reference.sources[rank], elements);
    for (std::size_t i = 0; i < elements; ++i) {
      reference.magnitudes[i] += std::abs(next[i]);
      if (rank > 0) {
        reference.values[i] = fold(operation.op, reference.values[i], next[i]);
      }
    }
  }
  if (operation.op == ReduceOp::kAverage) {
    for (std::size_t i = 0; i < elements; ++i) {
      reference.values[i] /= static_cast<double>(world);
      reference.magnitudes[i] /= static_cast<double>(world);
    }
  }
}

AllreduceData::Deviation AllreduceData::compare(const collective::Operation& operation,
                                                Algorithm used, std::uint16_t world,
                                                const std::uint8_t* result) const {
  const Agreement agreement = agreement_of(operation, used);
  const std::size_t stride =
      (operation.count + kSampled - 1) / kSampled;  // samples every stride-th
  const double bound = agreement == Agreement::kRounding ? epsilon_of(type_) * world : -1.0;
  Deviation deviation;
  Reference reference;
  reference.sources.resize(world);
  std::vector<std::uint8_t> bits(kBlock * element_);
  for (std::size_t block = 0; block * kBlock < operation.count; ++block) {
    const std::size_t elements = std::min(kBlock, operation.count - block * kBlock);
    const std::uint8_t* got = result + block * kBlock * element_;
    for (std::uint16_t rank = 0; rank < world; ++rank) {
      reference.sources[rank] = block_of(rank, block);
    }
    if (agreement == Agreement::kBits) {
      collective::reduce(type_, operation.op, reference.sources, elements, bits.data(), world);
      deviation.wrong += differing_elements(got, bits.data(), element_, elements);
    }
    const bool is_sampled = block % stride == 0;
    if (collective::is_floating(type_) && (is_sampled || bound >= 0.0)) {
      add_up(operation, elements, reference);
      const Deviation here = measure(reference, to_doubles(type_, got, elements), bound);
      deviation.wrong += here.wrong;
      deviation.error += is_sampled ? here.error : 0.0;
      deviation.energy += is_sampled ? here.energy : 0.0;
    }
  }
  return deviation;
}

// A bound below 0 means no bound: then nothing is wrong.
AllreduceData::Deviation AllreduceData::measure(const Reference& reference,
                                                const std::vector<double>& values, double bound) {
  Deviation deviation;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double off = values[i] - reference.values[i];
    const bool is_right = bound < 0.0 || std::abs(off) <= bound * reference.magnitudes[i];
    deviation.wrong += is_right ? 0.0 : 1.0;  // a NaN is never right
    deviation.error += off * off;
    deviation.energy += reference.values[i] * reference.values[i];
  }
  return deviation;
}

// ------------------------------------------------------------------ the measurement

namespace {

double percentile(const std::vector<double>& sorted, std::size_t percent) {
  const std::size_t place = (sorted.size() * percent + 99) / 100;
  return sorted[std::min(sorted.size(), std::max<std::size_t>(place, 1)) - 1];
}

}  // namespace

TimeSummary summarise_times(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto count = static_cast<double>(seconds.size());
  TimeSummary summary;
  summary.mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / count;
  summary.min = seconds.front();
  summary.max = seconds.back();
  summary.p50 = percentile(seconds, 50);
  summary.p99 = percentile(seconds, 99);
  double squares = 0.0;
  for (const double time : seconds) {
    squares += (time - summary.mean) * (time - summary.mean);
  }
  summary.deviation = std::sqrt(squares / count);
  summary.variation_percent = summary.mean > 0.0 ? 100.0 * summary.deviation / summary.mean : 0.0;
  return summary;
}

Bandwidth allreduce_bandwidth(std::size_t bytes, double seconds, unsigned world) {
  const double algorithm = seconds > 0.0 ? static_cast<double>(bytes) / seconds * 1e-9 : 0.0;
  return {algorithm, algorithm * 2.0 * (world - 1) / world};
}

namespace {

enum class Place : std::uint8_t { kOut, kIn };

class Measurement {
 public:
  Measurement(const AllreduceWork& work, std::size_t bytes, const AllreduceData& data,
              AllreducePeers& peers)
      : work_(work),
        operation_(work.operation_of(bytes)),
        data_(data),
        peers_(peers),
        input_(bytes),
        buffers_(work.in_flight, std::vector<std::uint8_t>(bytes)) {
    data_.fill(peers_.rank(), operation_.count, input_.data());
    row_.bytes = bytes;
    row_.count = operation_.count;
  }

  AllreduceRow run() {
    row_.out_of_place = pass(Place::kOut);
    row_.in_place = pass(Place::kIn);
    share_traffic();
    if (deviation_.energy > 0.0) {
      row_.nmse = deviation_.error / deviation_.energy;
    }
    return row_;
  }

 private:
  AllreducePass pass(Place place);
  std::vector<double> time_iterations(Place place);
  double time_one(Place place, bool counts);
  double check(Place place);
  bool replicas_agree();
  void refill();
  void count(const collective::OperationReport& report);
  void share_traffic();

  const AllreduceWork& work_;
  const collective::Operation operation_;
  const AllreduceData& data_;
  AllreducePeers& peers_;
  std::vector<std::uint8_t> input_;
  std::vector<std::vector<std::uint8_t>> buffers_;  // outputs; for in-place operations also inputs
  AllreduceData::Deviation deviation_;              // of all checks
  AllreduceRow row_;
};

void Measurement::refill() {
  for (std::vector<std::uint8_t>& buffer : buffers_) {
    std::memcpy(buffer.data(), input_.data(), input_.size());
  }
}

void Measurement::count(const collective::OperationReport& report) {
  const collective::PeerDelivery delivery = report.total();
  row_.algorithm = report.algorithm;
  row_.traffic.wire_bytes += static_cast<double>(report.wire_bytes_sent);
  row_.traffic.packets += static_cast<double>(delivery.packets);
  row_.traffic.trimmed += static_cast<double>(delivery.trimmed);
  row_.traffic.missing += static_cast<double>(delivery.missing);
  row_.traffic.repeated += static_cast<double>(report.packets_repeated);
  row_.traffic.added += static_cast<double>(report.sums.added);
  row_.traffic.alone += static_cast<double>(report.sums.alone);
  row_.traffic.flushed += static_cast<double>(report.sums.flushed);
  row_.traffic.clipped += static_cast<double>(report.sums.clipped);
  row_.traffic.operations += 1.0;
}

double Measurement::time_one(Place place, bool counts) {
  const base::MonotonicClock clock;
  std::vector<std::shared_ptr<comm::Request>> requests;
  const base::Instant start = clock.now();
  for (std::vector<std::uint8_t>& buffer : buffers_) {
    collective::Operation operation = operation_;
    operation.input = place == Place::kIn ? buffer.data() : input_.data();
    operation.output = buffer.data();
    requests.push_back(peers_.submit(operation));
  }
  for (const auto& request : requests) {
    wait_for(*request);
  }
  const base::Duration taken = clock.now() - start;
  if (counts) {
    for (const auto& request : requests) {
      count(request->report());
    }
  }
  return static_cast<double>(taken.count()) * 1e-9 / work_.in_flight;
}

std::vector<double> Measurement::time_iterations(Place place) {
  const bool starts_afresh = place == Place::kIn && operation_.tolerance.has_value();
  std::vector<double> seconds;
  refill();
  peers_.barrier();
  for (unsigned i = 0; i < work_.warmup + work_.iterations; ++i) {
    if (starts_afresh) {
      refill();
      peers_.barrier();
    }
    const bool is_warm = i >= work_.warmup;
    const double taken = time_one(place, is_warm);
    if (is_warm) {
      seconds.push_back(taken);
    }
  }
  peers_.take_maximum(seconds);
  return seconds;
}

bool Measurement::replicas_agree() {
  const auto checksum = static_cast<double>(crc32c(0, buffers_.front()));
  std::array<double, 2> extremes{checksum, -checksum};
  peers_.take_maximum(extremes);
  return extremes[0] == -extremes[1];
}

double Measurement::check(Place place) {
  refill();
  if (place == Place::kOut) {
    for (std::vector<std::uint8_t>& buffer : buffers_) {
      std::memset(buffer.data(), 0xFF, buffer.size());
    }
  }
  time_one(place, false);
  row_.replicas_agree = replicas_agree() && row_.replicas_agree.value_or(true);
  AllreduceData::Deviation sum;
  for (const std::vector<std::uint8_t>& buffer : buffers_) {
    const AllreduceData::Deviation one =
        data_.compare(operation_, row_.algorithm, peers_.world(), buffer.data());
    sum.wrong += one.wrong;
    sum.error += one.error;
    sum.energy += one.energy;
  }
  std::array<double, 3> shared{sum.wrong, sum.error, sum.energy};
  peers_.add_up(shared);
  deviation_.error += shared[1];
  deviation_.energy += shared[2];
  return shared[0];
}

AllreducePass Measurement::pass(Place place) {
  AllreducePass pass;
  pass.seconds = time_iterations(place);
  double wrong = 0.0;
  for (unsigned i = 0; i < work_.checks; ++i) {
    wrong += check(place);
  }
  if (work_.checks > 0 && !operation_.tolerance) {
    pass.wrong = wrong;
  }
  return pass;
}

void Measurement::share_traffic() {
  AllreduceTraffic& traffic = row_.traffic;
  const std::array<double*, 9> fields{&traffic.wire_bytes, &traffic.packets,  &traffic.trimmed,
                                      &traffic.missing,    &traffic.repeated, &traffic.added,
                                      &traffic.alone,      &traffic.flushed,  &traffic.clipped};
  std::array<double, fields.size()> shared{};
  std::transform(fields.begin(), fields.end(), shared.begin(),
                 [](const double* of) { return *of; });
  peers_.add_up(shared);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    *fields[i] = shared[i];
  }
}

}  // namespace

std::optional<double> AllreduceRow::wire_bytes_per_element(unsigned world) const {
  const double crossings = algorithm == collective::Algorithm::kServers ? world : 2.0 * (world - 1);
  const double elements = traffic.operations * static_cast<double>(count) * crossings;
  return elements > 0.0 ? std::optional(traffic.wire_bytes / elements) : std::nullopt;
}

AllreduceRow measure_allreduce(const AllreduceWork& work, std::size_t bytes,
                               const AllreduceData& data, AllreducePeers& peers) {
  return Measurement(work, bytes, data, peers).run();
}

}  // namespace spillway::bench
