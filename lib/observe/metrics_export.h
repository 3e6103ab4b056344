// SPDX-License-Identifier: Apache-2.0
//
// Exports a process's metrics, as its variables say: into a file, over HTTP, both, or nowhere (the
// default). All sources of a process with the same place, communicators and a job, appear there
// together.
//
//   SPILLWAY_METRICS_FILE     a path (identity.h), for node-exporter's textfile collector. Without
//                             %r or %p, local ranks from 1 on add their number, so that they do
//                             not overwrite each other: `name.prom`, `name.1.prom`
//   SPILLWAY_METRICS_SECONDS  period of writing; also written at start and end
//   SPILLWAY_METRICS_LISTEN   address:port that answers GET /metrics
//   SPILLWAY_METRICS_PORT     the same with 127.0.0.1 and this port; LISTEN wins
// Each rank adds its local rank to the port; port 0 means any free port.
//
// The file is replaced by a rename, so readers see one whole text. A file that cannot be written
// causes one warning until it can be written again. A port that is taken causes a warning only.
//
// The place's threads call the sources, never after the export is destroyed. Any thread may create
// and destroy exports.
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
#include "observe/identity.h"
#include "observe/metrics.h"

namespace spillway::runtime {

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
  base::Duration period{};
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

}  // namespace spillway::runtime
