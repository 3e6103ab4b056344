// SPDX-License-Identifier: Apache-2.0
//
// Where a process's metrics go, as its variables say: into a file, to whoever asks over HTTP, both,
// or nowhere, which is the default. All that a process sends to one place, communicators and a job,
// stands there together.
//
//   SPILLWAY_METRICS_FILE     a path (identity.h), for node-exporter's textfile collector. Where it
//                             holds neither %r nor %p, ranks of one machine would write over each
//                             other: the second's is `name.1.prom` for `name.prom`
//   SPILLWAY_METRICS_SECONDS  how often it is written; also at the start and at the end
//   SPILLWAY_METRICS_LISTEN   address:port to answer GET /metrics at
//   SPILLWAY_METRICS_PORT     the same as LISTEN with 127.0.0.1 and this port; LISTEN wins
// Each rank of a machine adds its local rank to the port; port 0 stays: any that is free.
//
// Readers of the file see a whole text or the one before, because it is written beside the file
// under another name and then renamed. A file that cannot be written is warned of once, until it
// can be again; a port that is taken is warned of, and the rest goes on.
//
// Sources are called from threads of the place, and not any more once the export is destroyed. Any
// thread may make and destroy exports.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/environment.h"
#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "net/metrics_server.h"
#include "runtime/observe/identity.h"
#include "runtime/observe/metrics.h"

namespace spillway::runtime {

class MetricsFile {
 public:
  // Throws std::system_error where no thread can be made.
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
  bool warned_ = false;  // the thread's
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;  // under mutex_
  std::thread thread_;
};

class MetricsPlace;

struct MetricsConfig {
  std::string file{};  // empty: none
  base::Duration period{};
  std::optional<net::SocketAddress> listen{};
};

base::Result<MetricsConfig> metrics_config(const base::Environment& environment,
                                           const Identity& identity);

// One of the two.
struct MetricsSource {
  std::function<CommunicatorMetrics()> communicator{};
  std::function<std::string()> text{};  // whole families, whose names no communicator has
};

class MetricsExport {
 public:
  MetricsExport(const MetricsConfig& config, MetricsSource source);
  ~MetricsExport();
  MetricsExport(const MetricsExport&) = delete;
  MetricsExport& operator=(const MetricsExport&) = delete;

  // Where it answers; none where it does not.
  std::optional<net::SocketAddress> address() const;

 private:
  MetricsSource source_;
  std::shared_ptr<MetricsPlace> file_;
  std::shared_ptr<MetricsPlace> server_;
};

}  // namespace spillway::runtime
