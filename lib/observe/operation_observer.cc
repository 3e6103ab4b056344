// SPDX-License-Identifier: Apache-2.0
#include "observe/operation_observer.h"

#include <numeric>

#include "base/clock.h"
#include "observe/log.h"
#include "observe/metrics.h"

namespace spillway::observe {

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
  record.carrier = report.carrier == transport::Carrier::kStream ? "tcp" : "";
  record.started = report.started;
  const collective::PeerDelivery total = report.total();
  record.packets_expected = total.packets;
  record.packets_whole = total.whole;
  record.packets_trimmed = total.trimmed;
  record.packets_missing = total.missing;
  record.packets_retransmitted = report.packets_repeated;
  record.wire_bytes_sent = report.wire_bytes_sent;
  record.coded_bytes_sent = report.code.bytes;
  record.coded_bytes_spared = report.code.plain_bytes - report.code.bytes;
  for (std::uint32_t rank = 0; rank < report.peers.size(); ++rank) {
    if (report.peers[rank].late) {
      record.add_late_rank(rank);
    }
  }
}

}  // namespace

base::Result<ObserverConfig> observer_config(const base::Environment& environment,
                                             const Identity& identity) {
  const base::Result<MetricsConfig> metrics = metrics_config(environment, identity);
  if (!metrics.ok()) {
    return metrics.status();
  }
  return ObserverConfig{.dump = dump_config(environment),
                        .timeline = expand_path(environment.text("SPILLWAY_TIMELINE"), &identity),
                        .metrics = *metrics,
                        .waits = environment.text("SPILLWAY_WAITS"),
                        .execution_trace = environment.text("SPILLWAY_EXECUTION_TRACE")};
}

OperationObserver::OperationObserver(const Identity& identity, const ObserverConfig& config)
    : identity_(identity),
      flight_file_(config.dump.file),
      recorder_(identity),
      timeline_(open_timeline(config.timeline, identity)),
      waits_(config.waits) {
  metrics_.communicator = identity.communicator;
  metrics_.rank = identity.rank;
  metrics_.peers = peer_metrics(identity.world);
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
    metrics_.peers[rank].add(report.peers[rank]);
  }
}

namespace {

base::Instant next_multiple(base::Instant now) {
  const std::int64_t every = net::kWaitSampleInterval.count();
  return base::Instant(base::nanoseconds((now.since_zero().count() / every + 1) * every));
}

std::uint64_t& looks_at(net::WaitCounts& counts, net::Wait wait) {
  return counts.looks[static_cast<std::size_t>(wait)];
}

std::optional<net::WaitBoard> open_board(const std::string& path) {
  if (path.empty()) {
    return std::nullopt;
  }
  base::Result<net::WaitBoard> board = net::WaitBoard::open(path);
  if (!board.ok()) {
    log_warn("what ranks wait for is not counted: {}", board.status().message());
    return std::nullopt;
  }
  return std::move(board).value();
}

}  // namespace

net::Wait wait_of(transport::Holdup holdup, bool is_computing) {
  switch (holdup) {
    case transport::Holdup::kNothing:
      return net::Wait::kNothing;
    case transport::Holdup::kStream:
      return net::Wait::kStream;
    case transport::Holdup::kCredit:
      return net::Wait::kCredit;
    case transport::Holdup::kReport:
    case transport::Holdup::kReceiver:
    case transport::Holdup::kIncoming:
      break;
    case transport::Holdup::kIdle:
      return net::Wait::kComputing;  // nothing in the network to wait for
  }
  if (is_computing) {
    return net::Wait::kComputing;
  }
  return holdup == transport::Holdup::kReport ? net::Wait::kAnswer : net::Wait::kOtherRank;
}

WaitWatch::WaitWatch(const std::string& path) : WaitWatch(open_board(path)) {}

void WaitWatch::begin(base::Instant now) {
  if (!board_) {
    return;
  }
  if (under_way_++ == 0) {
    due_ = next_multiple(now);
  }
  board_->add({.under_way = 1});
}

void WaitWatch::end() {
  if (!board_) {
    return;
  }
  if (--under_way_ == 0) {
    due_ = transport::kNever;
  }
  board_->add({.under_way = UINT64_MAX});  // adds -1
}

void WaitWatch::look(net::Wait wait, base::Instant now) {
  if (now < due_) {
    return;
  }
  net::WaitCounts seen;
  looks_at(seen, net::Wait::kComputing) =
      static_cast<std::uint64_t>((now - due_).count() / net::kWaitSampleInterval.count());
  ++looks_at(seen, wait);
  board_->add(seen);
  due_ = next_multiple(now);
}

void WaitWatch::tell(const transport::EndpointCounters& counters) {
  if (!board_) {
    return;
  }
  board_->add({.sent_bytes = counters.data_sent_bytes - told_.sent_bytes,
               .resent_bytes = counters.data_resent_bytes - told_.resent_bytes,
               .wasted_bytes = counters.wasted_bytes - told_.wasted_bytes});
  told_.sent_bytes = counters.data_sent_bytes;
  told_.resent_bytes = counters.data_resent_bytes;
  told_.wasted_bytes = counters.wasted_bytes;
}

}  // namespace spillway::observe
