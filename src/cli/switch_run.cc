// SPDX-License-Identifier: Apache-2.0
//
// `spillway switch run`: a fabric of trimming switches between real hosts, until it is told to
// stop. The fabric has a thread of its own; this one waits for signals and shows what happens.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/fabric_report.h"
#include "cli/scenario_file.h"
#include "fabric/fabric_thread.h"
#include "fabric/port_specs.h"
#include "net/metrics_server.h"
#include "net/time_spec.h"
#include "sim/simulation.h"
#include "sim/units_text.h"
#include "transport/endpoint.h"

namespace spillway::cli {
namespace {

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  std::string metrics;
  std::string every;
  std::string duration;
  bool json = false;
};

std::optional<base::Duration> duration_of(const std::string& option, const std::string& text) {
  if (text.empty()) {
    return std::nullopt;
  }
  const base::Result<base::Duration> parsed = sim::parse_duration(text);
  if (!parsed.ok() || *parsed <= base::Duration()) {
    throw CLI::ValidationError(option,
                               fmt::format("'{}' is not a time such as 500ms or 10s", text));
  }
  return *parsed;
}

// Signals that end the run are waited for, not handled: blocked before any thread is made, so that
// every thread has them blocked.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~EndSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  // True once one has come.
  bool wait(base::Duration most) const {
    const timespec timeout = net::timespec_of(most);
    return sigtimedwait(&set_, nullptr, &timeout) > 0;
  }

 private:
  sigset_t set_{};
  sigset_t before_{};
};

std::unique_ptr<fabric::FabricThread> start_fabric(const Options& options) {
  const sim::Scenario scenario = load_scenario(options.config, options.overrides);
  const auto in_file = [&options](const base::Status& status) {
    return CommandError(fmt::format("{}: {}", options.config, status.message()));
  };
  const base::Result<sim::Topology> topology = sim::build_topology(scenario);
  if (!topology.ok()) {
    throw in_file(topology.status());
  }
  const base::Result<std::vector<fabric::PortSpec>> ports = fabric::port_specs(scenario, *topology);
  if (!ports.ok()) {
    throw in_file(ports.status());
  }
  base::Result<std::unique_ptr<fabric::FabricThread>> fabric =
      fabric::FabricThread::make(scenario, *ports);
  if (!fabric.ok()) {
    throw in_file(fabric.status());
  }
  return std::move(fabric).value();
}

std::unique_ptr<net::MetricsServer> serve_metrics(const Options& options,
                                                  const fabric::FabricThread& fabric) {
  if (options.metrics.empty()) {
    return nullptr;
  }
  const net::SocketAddress listen = value_or_throw(net::SocketAddress::parse(options.metrics));
  return value_or_throw(
      net::MetricsServer::start(listen, [&fabric] { return fabric_metrics(fabric.snapshot()); }));
}

// What is shown while it runs, if anything.
class Display {
 public:
  Display(const Options& options, bool every_was_given)
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

void watch(const Options& options, const EndSignals& signals, const fabric::FabricThread& fabric) {
  const base::MonotonicClock clock;
  const std::optional<base::Duration> every = duration_of("--every", options.every);
  const base::Duration interval = every.value_or(base::seconds(1));
  const std::optional<base::Duration> length = duration_of("--for", options.duration);
  const base::Instant end = length ? clock.now() + *length : transport::kNever;
  Display display(options, every.has_value());
  for (base::Instant now = clock.now(); now < end; now = clock.now()) {
    if (signals.wait(std::min(interval, end - now))) {
      return;
    }
    if (display.is_live()) {
      display.show(fabric.snapshot(), interval);
    }
  }
}

void run(const Options& options) {
  duration_of("--every", options.every);  // before anything is opened
  duration_of("--for", options.duration);
  const EndSignals signals;
  const std::unique_ptr<fabric::FabricThread> fabric = start_fabric(options);
  const base::Instant start = base::MonotonicClock().now();
  std::unique_ptr<net::MetricsServer> metrics = serve_metrics(options, *fabric);
  if (metrics != nullptr) {
    fmt::print(stderr, "metrics at http://{}/metrics\n", metrics->address().to_string());
  }
  watch(options, signals, *fabric);
  if (const base::Status status = fabric->finish(); !status.ok()) {
    throw CommandError(status);
  }
  const fabric::FabricSnapshot last = fabric->snapshot();
  if (options.json) {
    fmt::print("{}\n", fabric_json(last).dump(options.every.empty() ? 2 : -1));
    return;
  }
  const base::Duration elapsed = base::MonotonicClock().now() - start;
  fmt::print("{}{}", fabric_table(last, {}, elapsed).to_string(), fabric_summary(last));
}

}  // namespace

void add_switch_run(CLI::App& noun) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      noun.add_subcommand("run", "Switches between real hosts, until SIGINT or SIGTERM");
  command
      ->add_option("config", options->config,
                   "A scenario with a `port` line per host (src/sim/scenario.h)")
      ->required();
  command
      ->add_option("--set", options->overrides,
                   "noun.key=value: change a line; noun.2.key=value: only the second of that noun")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json,
                    "Print JSON instead of a table; with --every, a line each time");
  command->add_option("--metrics", options->metrics,
                      "ADDRESS:PORT where Prometheus finds the counters, at /metrics");
  command->add_option("--every", options->every, "How often what is shown is renewed (1s)");
  command->add_option("--for", options->duration, "End by itself after this time");
  command->footer(
      "Examples:\n"
      "  spillway switch run tests/scenarios/relay.scn\n"
      "  spillway switch run tests/scenarios/relay.scn --metrics 127.0.0.1:9400 --for 10s --json\n"
      "  sudo spillway switch run office.scn --set switch.queue=64k");
  command->callback([options] { run(*options); });
}

}  // namespace spillway::cli
