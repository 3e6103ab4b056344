// SPDX-License-Identifier: Apache-2.0
//
// Records a communicator's operations: flight recorder, timeline and metrics, as the environment
// says. Call begin() and end() on the communicator's thread; other threads read the metrics.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/environment.h"
#include "collective/report.h"
#include "net/transport_driver.h"
#include "observe/flight_recorder.h"
#include "observe/identity.h"
#include "observe/metrics.h"
#include "observe/metrics_export.h"
#include "observe/signal_dump.h"
#include "observe/timeline.h"
#include "observe/wait_watch.h"

namespace spillway::runtime {

struct ObserverConfig {
  std::uint32_t records = 0;  // of the flight recorder
  DumpConfig dump{};
  std::string timeline{};  // a path; empty: none
  MetricsConfig metrics{};
  std::string waits{};            // a board's path (wait_watch.h); empty: none
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

}  // namespace spillway::runtime
