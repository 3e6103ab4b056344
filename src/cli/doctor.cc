// SPDX-License-Identifier: Apache-2.0
//
// `spillway doctor`: is this host fit for Spillway, and the way to another one?
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/doctor_report.h"
#include "doctor/listener.h"
#include "doctor/local_checks.h"
#include "doctor/peer_checks.h"
#include "net/unique_fd.h"
#include "sim/units_text.h"
#include "transport/endpoint.h"

namespace spillway::cli {
namespace {

// Beside those of commands.h.
constexpr int kExitWarnings = 3;
constexpr int kExitErrors = 4;

constexpr std::int64_t kMostTrimSeconds = 60;

struct DoctorOptions {
  bool json = false;
  bool listens = false;
  std::string listen;  // empty: everywhere
  std::string duration;
  std::string peer;
  std::string trim_for = "1s";
  std::string trim_rate = "1gbit";
};

base::Duration duration_of(const std::string& option, const std::string& text) {
  const base::Result<base::Duration> parsed = sim::parse_duration(text);
  if (!parsed.ok() || *parsed <= base::Duration()) {
    throw CLI::ValidationError(option,
                               fmt::format("'{}' is not a time such as 500ms or 10s", text));
  }
  return *parsed;
}

// ------------------------------------------------------------------ the listener

// SIGINT and SIGTERM, which from now on make this readable and do nothing else.
net::UniqueFd end_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return net::UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC));
}

doctor::Listener open_listener(const DoctorOptions& options) {
  if (options.listen.empty()) {
    return value_or_throw(doctor::Listener::open_everywhere(doctor::kDefaultPort));
  }
  const net::SocketAddress address = value_or_throw(net::SocketAddress::parse(options.listen));
  return value_or_throw(doctor::Listener::open({&address, 1}));
}

void announce(const doctor::Listener& listener) {
  for (const net::SocketAddress& address : listener.addresses()) {
    fmt::print("listening at {}\n", address.to_string());
  }
  if (!listener.watches()) {
    fmt::print("without CAP_NET_RAW: packets with stale lengths cannot be seen\n");
  }
  std::fflush(stdout);
}

void listen(const DoctorOptions& options) {
  const base::Instant end = options.duration.empty() ? transport::kNever
                                                     : base::MonotonicClock().now() +
                                                           duration_of("--for", options.duration);
  const net::UniqueFd stop = end_signals();
  doctor::Listener listener = open_listener(options);
  announce(listener);
  listener.run(stop.get(), end);
  const doctor::ResponderCounters& counters = listener.counters();
  fmt::print("{} questions answered, {} not, {} packets of bursts, {} others\n", counters.answered,
             counters.limited + counters.turned_away, counters.counted, counters.garbage);
}

// ------------------------------------------------------------------ the checks

std::optional<unsigned> told_trim_bytes() {
  const char* value = std::getenv("SPILLWAY_TRIM_BYTES");
  const std::string_view text = value != nullptr ? value : "";
  unsigned bytes = 0;
  const bool is_number =
      std::from_chars(text.data(), text.data() + text.size(), bytes).ec == std::errc();
  return is_number ? std::optional(bytes) : std::nullopt;
}

doctor::TrimOptions trim_options(const DoctorOptions& options) {
  const base::Result<base::BitRate> rate = sim::parse_rate(options.trim_rate);
  if (!rate.ok()) {
    throw CLI::ValidationError("--trim-rate", rate.status().message());
  }
  const base::Duration length = duration_of("--trim-for", options.trim_for);
  if (length > base::seconds(kMostTrimSeconds)) {
    throw CLI::ValidationError("--trim-for", fmt::format("at most {}s", kMostTrimSeconds));
  }
  return {.rate = *rate, .length = length};
}

doctor::Findings run_checks(const DoctorOptions& options) {
  const doctor::TrimOptions trims = trim_options(options);
  if (options.peer.empty()) {
    return doctor::check_this_host();
  }
  const net::SocketAddress peer = value_or_throw(doctor::resolve_peer(options.peer));
  doctor::Findings findings = doctor::check_this_host();
  append(findings, doctor::check_way_to(peer, trims, told_trim_bytes()));
  return findings;
}

void examine(const DoctorOptions& options) {
  const doctor::Findings findings = run_checks(options);
  if (options.json) {
    fmt::print("{}\n", findings_json(findings).dump(2));
  } else {
    fmt::print("{}", findings_text(findings, wants_colours()));
  }
  const doctor::Severity worst = worst_of(findings);
  if (worst >= doctor::Severity::kWarning) {
    throw CommandExit{worst == doctor::Severity::kError ? kExitErrors : kExitWarnings};
  }
}

void add_listen_options(CLI::App& command, DoctorOptions& options, CLI::Option* peer) {
  // Given without a value, it leaves `listen` empty: everywhere.
  CLI::Option* listen = command.add_option_function<std::vector<std::string>>(
      "--listen",
      [&options](const std::vector<std::string>& values) {
        options.listens = true;
        options.listen = values.empty() ? "" : values.front();
      },
      fmt::format("Wait for probers, at ADDRESS:PORT (0.0.0.0:{0} and [::]:{0}), until SIGINT or "
                  "SIGTERM; nothing is checked",
                  doctor::kDefaultPort));
  listen->expected(0, 1)->type_name("[ADDRESS:PORT]")->excludes(peer);
  command.add_option("--for", options.duration, "End listening after this time")->needs(listen);
}

}  // namespace

void add_doctor(CLI::App& app) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App* command =
      app.add_subcommand("doctor", "Is this host fit for Spillway, and the way to another one?");
  command->add_flag("--json", options->json, "Print JSON instead of text");
  CLI::Option* peer = command->add_option("--peer", options->peer,
                                          "HOST:PORT of a listener: check the way to it as well");
  add_listen_options(*command, *options, peer);
  command
      ->add_option("--trim-for", options->trim_for,
                   "How long full-size packets are sent to see whether and how they are trimmed")
      ->capture_default_str();
  command->add_option("--trim-rate", options->trim_rate, "No faster than this")
      ->capture_default_str();
  command->footer(
      "Exit codes: 0 fit (notes allowed), 3 warnings, 4 errors; 1 could not check, 2 wrong usage.\n"
      "Examples:\n"
      "  spillway doctor                         this host\n"
      "  spillway doctor --listen                wait for probers, on one host\n"
      "  spillway doctor --peer 10.0.0.1:7078    probe it from others: two or three at once, to\n"
      "                                          find out to which size a full switch cuts");
  command->callback([options] { options->listens ? listen(*options) : examine(*options); });
}

}  // namespace spillway::cli
