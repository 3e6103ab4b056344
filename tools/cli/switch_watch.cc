// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/switch_watch.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/text.h"
#include "net/metrics_server.h"
#include "net/system_call.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/fabric_report.h"
#include "transport/endpoint.h"

namespace spillway::cli {
namespace {

std::optional<base::Duration> optional_duration(const std::string& option,
                                                const std::string& text) {
  if (text.empty()) {
    return std::nullopt;
  }
  const base::Result<base::Duration> parsed = base::parse_duration(text);
  if (!parsed.ok() || *parsed <= base::Duration()) {
    throw CLI::ValidationError(option,
                               fmt::format("'{}' is not a time such as 500ms or 10s", text));
  }
  return *parsed;
}

std::unique_ptr<net::MetricsServer> serve_metrics(const WatchOptions& options,
                                                  const TakeSnapshot& snapshot) {
  if (options.metrics.empty()) {
    return nullptr;
  }
  const net::SocketAddress listen = parsed("--metrics", net::SocketAddress::parse(options.metrics));
  auto server = value_or_throw(
      net::MetricsServer::start(listen, [&snapshot] { return fabric_metrics(snapshot()); }));
  fmt::print(stderr, "metrics at http://{}/metrics\n", server->address().to_string());
  return server;
}

// The live display, if any.
class Display {
 public:
  Display(const WatchOptions& options, bool every_was_given)
      : lines_(options.json && every_was_given),
        redraws_(!options.json && ::isatty(STDOUT_FILENO) == 1) {}

  bool is_live() const { return lines_ || redraws_; }

  void show(const fabric::FabricSnapshot& now, base::Duration elapsed) {
    if (lines_) {
      fmt::print("{}\n", fabric_json(now).dump());
      std::fflush(stdout);
    } else if (redraws_) {
      constexpr const char* kHomeAndClear = "\x1b[H\x1b[J";
      fmt::print("{}{}{}", kHomeAndClear, fabric_table(now, before_, elapsed).to_string(),
                 fabric_summary(now));
      std::fflush(stdout);
      before_ = now;
    }
  }

 private:
  bool lines_;
  bool redraws_;
  fabric::FabricSnapshot before_;
};

}  // namespace

void add_watch_options(CLI::App& command, WatchOptions& options) {
  command.add_flag("--json", options.json,
                   "Print JSON instead of a table; with --every, a line each time");
  command.add_option("--metrics", options.metrics,
                     "ADDRESS:PORT where Prometheus finds the counters, at /metrics");
  command.add_option("--every", options.every, "How often what is shown is renewed (1s)");
  command.add_option("--for", options.duration, "End by itself after this time");
}

void check_watch_options(const WatchOptions& options) {
  optional_duration("--every", options.every);
  optional_duration("--for", options.duration);
}

EndSignals::EndSignals() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGINT);
  sigaddset(&set_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set_, &before_);
}

EndSignals::~EndSignals() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool EndSignals::wait(base::Duration most) const {
  const timespec timeout = net::timespec_of(most);
  return sigtimedwait(&set_, nullptr, &timeout) > 0;
}

void watch_fabric(const WatchOptions& options, const EndSignals& signals,
                  const TakeSnapshot& snapshot) {
  const std::unique_ptr<net::MetricsServer> metrics = serve_metrics(options, snapshot);
  const base::MonotonicClock clock;
  const std::optional<base::Duration> every = optional_duration("--every", options.every);
  const base::Duration interval = every.value_or(base::seconds(1));
  const std::optional<base::Duration> length = optional_duration("--for", options.duration);
  const base::Instant end = length ? clock.now() + *length : transport::kNever;
  Display display(options, every.has_value());
  for (base::Instant now = clock.now(); now < end; now = clock.now()) {
    if (signals.wait(std::min(interval, end - now))) {
      return;
    }
    if (display.is_live()) {
      display.show(snapshot(), interval);
    }
  }
}

void print_fabric(const WatchOptions& options, const fabric::FabricSnapshot& snapshot,
                  base::Duration elapsed) {
  if (options.json) {
    fmt::print("{}\n", fabric_json(snapshot).dump(options.every.empty() ? 2 : -1));
    return;
  }
  fmt::print("{}{}", fabric_table(snapshot, {}, elapsed).to_string(), fabric_summary(snapshot));
  if (!snapshot.adders.empty()) {
    fmt::print("\n{}", adders_table(snapshot.adders).to_string());
  }
}

}  // namespace spillway::cli
