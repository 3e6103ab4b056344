// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/allreduce/measure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/clock.h"
#include "wire/crc32c.h"

namespace spillway::bench {
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
  std::vector<std::shared_ptr<runtime::Request>> requests;
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
  const auto checksum = static_cast<double>(wire::crc32c(0, buffers_.front()));
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
