// SPDX-License-Identifier: Apache-2.0
#include "observe/operation_observer.h"

#include <numeric>

#include "base/clock.h"
#include "observe/log.h"
#include "observe/metrics.h"

namespace spillway::runtime {
namespace {

OperationRecord record_of(const collective::Operation& operation) {
  OperationRecord record;
  record.kind = collective::kind_name(operation.kind);
  record.type = collective::data_type_name(operation.type);
  record.op = collective::reduce_op_name(operation.op);
  record.algorithm = collective::algorithm_name(operation.algorithm);
  record.count = operation.count;
  record.bytes = operation.bytes();
  record.priority = operation.priority;
  return record;
}

void take_report(const collective::OperationReport& report, OperationRecord& record) {
  record.algorithm = collective::algorithm_name(report.algorithm);
  record.started = report.started;
  const collective::PeerDelivery total = report.total();
  record.packets_expected = total.packets;
  record.packets_whole = total.whole;
  record.packets_trimmed = total.trimmed;
  record.packets_missing = total.missing;
  record.packets_retransmitted = report.packets_repeated;
  record.wire_bytes_sent = report.wire_bytes_sent;
  for (std::uint32_t rank = 0; rank < report.peers.size(); ++rank) {
    if (report.peers[rank].late) {
      record.add_late_rank(rank);
    }
  }
}

}  // namespace

base::Result<ObserverConfig> observer_config(const base::Environment& environment,
                                             const Identity& identity) {
  const base::Result<std::int64_t> records = environment.number("SPILLWAY_FLIGHT_RECORDER");
  const base::Result<DumpConfig> dump = dump_config(environment);
  const base::Result<MetricsConfig> metrics = metrics_config(environment, identity);
  for (const base::Status* status : {&records.status(), &dump.status(), &metrics.status()}) {
    if (!status->ok()) {
      return *status;
    }
  }
  return ObserverConfig{.records = static_cast<std::uint32_t>(*records),
                        .dump = *dump,
                        .timeline = expand_path(environment.text("SPILLWAY_TIMELINE"), &identity),
                        .metrics = *metrics,
                        .waits = environment.text("SPILLWAY_WAITS"),
                        .execution_trace = environment.text("SPILLWAY_EXECUTION_TRACE")};
}

OperationObserver::OperationObserver(const Identity& identity, const ObserverConfig& config)
    : identity_(identity),
      flight_file_(config.dump.file),
      recorder_(identity, config.records),
      timeline_(open_timeline(config.timeline, identity)),
      waits_(config.waits) {
  metrics_.communicator = identity.communicator;
  metrics_.rank = identity.rank;
  for (std::uint32_t rank = 0; rank < identity.world; ++rank) {
    PeerMetrics peer;
    peer.rank = rank;
    metrics_.peers.push_back(peer);
  }
  if (const base::Status status = install_signal_dump(config.dump); !status.ok()) {
    log_warn("{}", status.message());
  }
  exported_ = std::make_unique<MetricsExport>(config.metrics, MetricsSource{.communicator = [this] {
                                                const std::lock_guard lock(mutex_);
                                                return metrics_;
                                              }});
}

void OperationObserver::begin(std::uint64_t token, const collective::Operation& operation,
                              base::Instant now) {
  Watched watched{record_of(operation), FlightRecorder::kUnrecorded};
  watched.record.sequence = next_sequence_++;
  watched.record.queued = now;
  watched.ticket = recorder_.begin(watched.record);
  if (timeline_) {
    timeline_->begin(watched.record);
  }
  watched_.emplace(token, watched);
  waits_.begin(now);
  if (operation.tolerance && operation.type == collective::DataType::kFloat64 && !said_narrowed_) {
    said_narrowed_ = true;
    log_warn(
        "{} number {}: tolerant operations code float64 as float32, so values beyond 3.4e38 count "
        "as not finite; exact operations keep them",
        watched.record.kind, watched.record.sequence);
  }
  const std::lock_guard lock(mutex_);
  ++metrics_.operations_in_flight;
}

void OperationObserver::end(std::uint64_t token, const base::Status& status,
                            const collective::OperationReport& report) {
  const auto found = watched_.find(token);
  OperationRecord& record = found->second.record;
  take_report(report, record);
  const base::Instant now = base::MonotonicClock().now();
  if (status.ok()) {
    record.state = OperationState::kDone;
    record.finished = now;
  } else {
    record.fail(status.code(), status.message(), /*culprit=*/-1, now);
  }
  recorder_.end(found->second.ticket, record);
  if (timeline_) {
    timeline_->started(record);
    timeline_->end(record);
  }
  if (!status.ok()) {
    log_warn("{} number {} failed: {}", record.kind, record.sequence, status.message());
    static_cast<void>(recorder_.dump_to_file_on_error(flight_file_));
  }
  count(record, report);
  watched_.erase(found);
  waits_.end();
}

void OperationObserver::holds(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  metrics_.memory_bytes = bytes;
}

void OperationObserver::network(const net::DriverCounters& counters) {
  const transport::EndpointCounters& endpoint = counters.endpoint;
  const std::lock_guard lock(mutex_);
  metrics_.strangers = counters.received.strangers;
  metrics_.bad_packets =
      std::accumulate(counters.faults.begin(), counters.faults.end(), std::uint64_t{0}) +
      endpoint.foreign_job + endpoint.other_epoch + endpoint.unknown_peer + endpoint.misaddressed +
      endpoint.replayed;
  metrics_.repeated_packets = endpoint.repeated;
  metrics_.forged_refusals = counters.errors.forged_refusals;
  metrics_.ignored_icmp = counters.errors.ignored_icmp;
}

void OperationObserver::count(const OperationRecord& record,
                              const collective::OperationReport& report) {
  const std::lock_guard lock(mutex_);
  --metrics_.operations_in_flight;
  metrics_.add(record);
  const collective::Group group{static_cast<std::uint16_t>(identity_.rank),
                                static_cast<std::uint16_t>(identity_.world),
                                static_cast<std::uint16_t>(identity_.servers)};
  metrics_.user_bytes_in += input_bytes(report.operation, group);
  metrics_.user_bytes_out += output_bytes(report.operation, group);
  for (std::size_t rank = 0; rank < report.peers.size(); ++rank) {
    metrics_.peers[rank].lost_packets += report.peers[rank].missing;
    metrics_.peers[rank].trimmed_packets += report.peers[rank].trimmed;
    metrics_.peers[rank].late_operations += report.peers[rank].late ? 1 : 0;
  }
}

}  // namespace spillway::runtime
