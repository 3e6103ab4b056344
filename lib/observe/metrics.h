// SPDX-License-Identifier: Apache-2.0
//
// A communicator's counts since its creation, and their text in Prometheus' format (0.0.4). Names
// begin with spillway_communicator_, a switch's with spillway_switch_. Every sample carries the
// labels communicator and rank.
//
// Every expected packet is in exactly one of whole, trimmed and missing; duplicates and
// retransmissions are extra. Durations are counted in fixed buckets, which add up over ranks.
//
// Plain values and pure functions: the owner copies the counts for other threads.
//
// Limits: kMaxPeers series per communicator and count, for the ranks with most losses and delays;
// the rest is summed as peer="other". In larger jobs a rank can enter the named ones later: "other"
// then drops, which Prometheus reads as a counter reset.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "base/units.h"
#include "collective/report.h"
#include "net/address.h"
#include "net/metrics_server.h"
#include "observe/log.h"
#include "observe/operation_record.h"

namespace spillway::observe {

class DurationHistogram {
 public:
  // Inclusive upper bounds, from a small operation on a fast network to a hang.
  static constexpr std::array<base::Duration, 16> kBuckets = {
      base::microseconds(100), base::microseconds(250),  base::microseconds(500),
      base::milliseconds(1),   base::microseconds(2500), base::milliseconds(5),
      base::milliseconds(10),  base::milliseconds(25),   base::milliseconds(50),
      base::milliseconds(100), base::milliseconds(250),  base::milliseconds(500),
      base::seconds(1),        base::seconds(5),         base::seconds(10),
      base::seconds(60)};

  void add(base::Duration duration);

  // Number of durations up to kBuckets[bucket].
  std::uint64_t count_up_to(std::size_t bucket) const;
  std::uint64_t count() const;
  base::Duration sum() const { return sum_; }

 private:
  std::array<std::uint64_t, kBuckets.size() + 1> counts_{};  // the last: longer than all bounds
  base::Duration sum_;
};

struct OperationCounts {
  std::uint64_t done = 0;
  std::uint64_t failed = 0;
};

// Packets and operations of one peer, summed over operations.
struct PeerMetrics {
  std::uint32_t rank = 0;
  std::uint64_t lost_packets = 0;
  std::uint64_t trimmed_packets = 0;
  std::uint64_t late_operations = 0;  // completed without all of its part

  void add(const collective::PeerDelivery& delivery) {
    lost_packets += delivery.missing;
    trimmed_packets += delivery.trimmed;
    late_operations += delivery.late ? 1 : 0;
  }
};

// Entries of ranks 0 to world - 1, all zero.
std::vector<PeerMetrics> peer_metrics(std::uint32_t world);

struct CommunicatorMetrics {
  std::string communicator = "world";
  std::uint32_t rank = 0;

  std::map<std::string, OperationCounts> operations{};  // by kind
  DurationHistogram durations{};
  std::uint64_t operations_in_flight = 0;
  std::uint64_t user_bytes_in = 0;   // handed in by the caller
  std::uint64_t user_bytes_out = 0;  // handed back
  std::uint64_t wire_bytes_sent = 0;
  std::uint64_t wire_bytes_received = 0;
  std::uint64_t packets_whole = 0;
  std::uint64_t packets_trimmed = 0;
  std::uint64_t packets_missing = 0;
  std::uint64_t packets_duplicate = 0;
  std::uint64_t packets_retransmitted = 0;
  // Rejected input: from hosts that are no peer; damaged, forged or replayed packets; data that
  // came before; ICMP refusals of packets never sent; other ICMP messages.
  std::uint64_t strangers = 0;
  std::uint64_t bad_packets = 0;
  std::uint64_t repeated_packets = 0;
  std::uint64_t forged_refusals = 0;
  std::uint64_t ignored_icmp = 0;
  std::uint64_t memory_bytes = 0;
  std::vector<PeerMetrics> peers{};

  // Adds an operation that has ended. Does not touch user bytes, peers or gauges.
  void add(const OperationRecord& record);
};

inline constexpr std::size_t kMaxPeers = 64;

std::string metrics_text(std::span<const CommunicatorMetrics> communicators);

// `value` as a label: valid UTF-8, with \, " and line ends escaped.
std::string escaped_label(std::string_view value);

// ------------------------------------------------------------------ export

// Exports a process's metrics, as its variables say: into a file, over HTTP, both, or nowhere (the
// default). All sources of a process with the same place, communicators and a job, appear there
// together.
//
//   SPILLWAY_METRICS_FILE     a path (log.h), for node-exporter's textfile collector. Without
//                             %r or %p, local ranks from 1 on add their number, so that they do
//                             not overwrite each other: `name.prom`, `name.1.prom`. It is written
//                             at start, every 10 seconds, and at the end
//   SPILLWAY_METRICS_LISTEN   address:port that answers GET /metrics; a port alone is one of
//                             127.0.0.1. Each rank adds its local rank to the port; port 0 of an
//                             address means any free port
//
// The file is replaced by a rename, so readers see one whole text. A file that cannot be written
// causes one warning until it can be written again. A port that is taken causes a warning only.
//
// The place's threads call the sources, never after the export is destroyed. Any thread may create
// and destroy exports.

class MetricsFile {
 public:
  // Throws std::system_error if no thread can be made.
  MetricsFile(std::string path, base::Duration period, std::function<std::string()> render);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

 private:
  void run();
  void write();

  const std::string path_;
  const base::Duration period_;
  const std::function<std::string()> render_;
  bool warned_ = false;  // used only by the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;  // under mutex_
  std::thread thread_;
};

class MetricsPlace;

struct MetricsConfig {
  std::string file{};  // empty: no file
  base::Duration period = base::seconds(10);
  std::optional<net::SocketAddress> listen{};
};

base::Result<MetricsConfig> metrics_config(const base::Environment& environment,
                                           const Identity& identity);

// Exactly one of the two is set.
struct MetricsSource {
  std::function<CommunicatorMetrics()> communicator{};
  std::function<std::string()> text{};  // whole families, with names that no communicator uses
};

class MetricsExport {
 public:
  MetricsExport(const MetricsConfig& config, MetricsSource source);
  ~MetricsExport();
  MetricsExport(const MetricsExport&) = delete;
  MetricsExport& operator=(const MetricsExport&) = delete;

  // The address of the HTTP server; nullopt if there is none.
  std::optional<net::SocketAddress> address() const;

 private:
  MetricsSource source_;
  std::shared_ptr<MetricsPlace> file_;
  std::shared_ptr<MetricsPlace> server_;
};

}  // namespace spillway::observe
