// SPDX-License-Identifier: Apache-2.0
//
// Where a process's metrics go, as its variables say: into a file, to whoever asks over HTTP, both,
// or nowhere, which is the default.
//
//   SPILLWAY_METRICS_FILE     a path (path_pattern.h). Where it holds neither %r nor %p, ranks of
//   one
//                             machine would write over each other: the second's is `name.1.prom`
//                             for `name.prom`.
//   SPILLWAY_METRICS_SECONDS  how often it is written; 10 without it
//   SPILLWAY_METRICS_LISTEN   address:port to answer GET /metrics at
//   SPILLWAY_METRICS_PORT     the same as LISTEN with 127.0.0.1 and this port; LISTEN wins
// Each rank of a machine adds its local rank to the port; port 0 stays: any that is free.
//
// A variable that makes no sense, or a port that is taken, is warned of, and the rest goes on.
// `render` is called from threads of the export; they end with it. Making and destroying: one
// thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/units.h"
#include "net/address.h"
#include "net/metrics_server.h"
#include "runtime/identity.h"
#include "runtime/launch_environment.h"
#include "runtime/metrics_file.h"

namespace spillway::runtime {

struct MetricsSettings {
  std::string file{};  // empty: none
  base::Duration period{};
  std::optional<net::SocketAddress> listen{};
};

MetricsSettings metrics_settings(const Environment& environment, const Identity& identity);

class MetricsExport {
 public:
  MetricsExport(const MetricsSettings& settings, const std::function<std::string()>& render);

  // Where it answers; none where it does not.
  std::optional<net::SocketAddress> address() const;

 private:
  std::unique_ptr<MetricsFile> file_;
  std::unique_ptr<net::MetricsServer> server_;
};

}  // namespace spillway::runtime
