// SPDX-License-Identifier: Apache-2.0
#include "runtime/operation_observer.h"

#include "base/clock.h"
#include "runtime/debug_log.h"
#include "runtime/metrics_text.h"
#include "runtime/signal_dump.h"

namespace spillway::runtime {
namespace {

OperationRecord record_of(const collective::Operation& operation, std::uint8_t priority) {
  OperationRecord record;
  record.kind = collective::kind_name(operation.kind);
  record.type = collective::data_type_name(operation.type);
  record.op = collective::reduce_op_name(operation.op);
  record.algorithm = collective::algorithm_name(operation.algorithm);
  record.count = operation.count;
  record.bytes = operation.bytes();
  record.priority = priority;
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

OperationObserver::OperationObserver(const Identity& identity, const Environment& environment)
    : identity_(identity),
      flight_file_(dump_settings(environment).file),
      recorder_(identity, flight_records(environment)),
      timeline_(open_timeline(environment, identity)) {
  metrics_.communicator = identity.communicator;
  metrics_.rank = identity.rank;
  for (std::uint32_t rank = 0; rank < identity.world; ++rank) {
    PeerMetrics peer;
    peer.rank = rank;
    metrics_.peers.push_back(peer);
  }
  if (const base::Status status = install_signal_dump(dump_settings(environment)); !status.ok()) {
    log_warn("{}", status.message());
  }
  exported_ = std::make_unique<MetricsExport>(metrics_settings(environment, identity), [this] {
    const std::lock_guard lock(mutex_);
    return metrics_text({&metrics_, 1});
  });
}

void OperationObserver::begin(std::uint64_t token, const collective::Operation& operation,
                              std::uint8_t priority, base::Instant now) {
  Watched watched{record_of(operation, priority), FlightRecorder::kUnrecorded};
  watched.record.sequence = next_sequence_++;
  watched.record.queued = now;
  watched.ticket = recorder_.begin(watched.record);
  if (timeline_) {
    timeline_->begin(watched.record);
  }
  watched_.emplace(token, watched);
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
}

void OperationObserver::holds(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  metrics_.memory_bytes = bytes;
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
