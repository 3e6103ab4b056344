// SPDX-License-Identifier: Apache-2.0
//
// Records a communicator's operations: flight recorder, timeline and metrics, as the environment
// says. Call begin() and end() on the communicator's thread; other threads read the metrics.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/environment.h"
#include "base/units.h"
#include "collective/report.h"
#include "net/transport_driver.h"
#include "net/wait_board.h"
#include "observe/flight_recorder.h"
#include "observe/log.h"
#include "observe/metrics.h"
#include "observe/timeline.h"
#include "transport/endpoint.h"

namespace spillway::observe {

// Samples what a communicator's operations wait for, and counts it on a board that the observing
// process, such as a lab, creates (net/wait_board.h):
//
//   SPILLWAY_WAITS   the board's path; unset: no sampling
//
// While an operation is in flight, it samples every net::kWaitSampleInterval, at multiples of that
// period, so that samples do not follow the operations' rhythm. If a sample is late by whole
// periods, the loop's thread was busy or had no processor: those periods count as computing.
//
// One thread, the communicator's. Any number of communicators share a board.

net::Wait wait_of(transport::Holdup holdup, bool is_computing);

class WaitWatch {
 public:
  // Warns if the board cannot be opened; an empty path means no board.
  explicit WaitWatch(const std::string& path);
  explicit WaitWatch(std::optional<net::WaitBoard> board) : board_(std::move(board)) {}

  void begin(base::Instant now);
  void end();
  // When to call look(); kNever if no operation is in flight or there is no board.
  base::Instant next_look() const { return due_; }
  void look(net::Wait wait, base::Instant now);
  // Adds the bytes counted since the last call.
  void tell(const transport::EndpointCounters& counters);

 private:
  std::optional<net::WaitBoard> board_;
  std::uint64_t under_way_ = 0;
  base::Instant due_ = transport::kNever;
  net::WaitCounts told_;
};

struct ObserverConfig {
  DumpConfig dump{};
  std::string timeline{};  // a path; empty: none
  MetricsConfig metrics{};
  std::string waits{};            // a board's path; empty: none
  std::string execution_trace{};  // a folder (execution_trace.h); empty: none
};

base::Result<ObserverConfig> observer_config(const base::Environment& environment,
                                             const Identity& identity);

class OperationObserver {
 public:
  OperationObserver(const Identity& identity, const ObserverConfig& config);

  void begin(std::uint64_t token, const collective::Operation& operation, base::Instant now);
  void end(std::uint64_t token, const base::Status& status,
           const collective::OperationReport& report);
  // Memory in use, without the caller's buffers.
  void holds(std::size_t bytes);
  // Rejected input since the communicator was made.
  void network(const net::DriverCounters& counters);
  WaitWatch& waits() { return waits_; }

 private:
  struct Watched {
    OperationRecord record;
    FlightRecorder::Ticket ticket;
  };

  void count(const OperationRecord& record, const collective::OperationReport& report);

  Identity identity_;
  std::string flight_file_;
  FlightRecorder recorder_;
  std::unique_ptr<Timeline> timeline_;
  WaitWatch waits_;
  std::uint64_t next_sequence_ = 0;
  bool said_narrowed_ = false;                          // that float64 loses range; once is enough
  std::unordered_map<std::uint64_t, Watched> watched_;  // by token
  std::mutex mutex_;                                    // guards the metrics
  CommunicatorMetrics metrics_;
  std::unique_ptr<MetricsExport> exported_;  // last: its threads read the others
};

}  // namespace spillway::observe
