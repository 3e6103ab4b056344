// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/environment.h"
#include "base/text.h"
#include "net/system_call.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/host_checks.h"
#include "tools/doctor/listener.h"
#include "tools/doctor/peer_checks.h"
#include "transport/endpoint.h"

namespace spillway::cli {
namespace {

using doctor::Severity;

constexpr std::array<Severity, 4> kSeverities = {Severity::kOk, Severity::kNote, Severity::kWarning,
                                                 Severity::kError};

struct Label {
  std::string_view text;
  std::string_view colour;  // escape sequence that turns it on
};

Label label_of(Severity severity) {
  switch (severity) {
    case Severity::kOk:
      return {"ok", "\x1b[32m"};
    case Severity::kNote:
      return {"note", "\x1b[36m"};
    case Severity::kWarning:
      return {"warn", "\x1b[33m"};
    case Severity::kError:
      return {"FAIL", "\x1b[1;31m"};
  }
  return {"", ""};
}

std::string label_text(Severity severity, bool coloured) {
  const Label label = label_of(severity);
  const std::string padded = fmt::format("{:<4}", label.text);
  return coloured ? fmt::format("{}{}\x1b[0m", label.colour, padded) : padded;
}

std::string counts_text(std::span<const doctor::Finding> findings) {
  return fmt::format("{} ok, {} notes, {} warnings, {} errors", count_of(findings, Severity::kOk),
                     count_of(findings, Severity::kNote), count_of(findings, Severity::kWarning),
                     count_of(findings, Severity::kError));
}

std::string_view verdict(Severity worst) {
  if (worst == Severity::kError) {
    return "not fit";
  }
  return worst == Severity::kWarning ? "fit with reservations" : "fit";
}

// One line per finding, with the remedy indented below it.
std::string findings_text(std::span<const doctor::Finding> findings, bool coloured) {
  std::size_t width = 0;
  for (const doctor::Finding& finding : findings) {
    width = std::max(width, finding.check.size());
  }
  std::string text;
  for (const doctor::Finding& finding : findings) {
    text += fmt::format("{}  {:<{}}  {}\n", label_text(finding.severity, coloured), finding.check,
                        width, base::printable(finding.finding));
    if (!finding.remedy.empty()) {
      text += fmt::format("{:{}}do: {}\n", "", width + 8, base::printable(finding.remedy));
    }
  }
  return text + fmt::format("{}: {}\n", verdict(worst_of(findings)), counts_text(findings));
}

// {"findings": [{check, severity, finding, remedy}], "summary": {ok, note, warning, error, fit}}
nlohmann::json findings_json(std::span<const doctor::Finding> findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const doctor::Finding& finding : findings) {
    list.push_back({{"check", finding.check},
                    {"severity", severity_name(finding.severity)},
                    {"finding", finding.finding},
                    {"remedy", finding.remedy}});
  }
  nlohmann::json summary = {{"fit", worst_of(findings) < Severity::kWarning}};
  for (const Severity severity : kSeverities) {
    summary[std::string(severity_name(severity))] = count_of(findings, severity);
  }
  return {{"findings", list}, {"summary", summary}};
}

// Colours only on a terminal, and not if NO_COLOR is set (no-color.org).
bool wants_colours() {
  const char* refused = std::getenv("NO_COLOR");
  return (refused == nullptr || *refused == '\0') && ::isatty(STDOUT_FILENO) == 1;
}

// Exit codes besides those of commands.h.
constexpr int kExitWarnings = 3;
constexpr int kExitErrors = 4;

constexpr std::int64_t kMaxTrimSeconds = 60;

struct DoctorOptions {
  bool json = false;
  bool listens = false;
  std::string listen;  // empty: all addresses
  std::string duration;
  std::string peer;
  std::string trim_for = "1s";
  std::string trim_rate = "1gbit";
};

base::Duration duration_of(const std::string& option, const std::string& text) {
  const base::Result<base::Duration> parsed = base::parse_duration(text);
  if (!parsed.ok() || *parsed <= base::Duration()) {
    throw CLI::ValidationError(option,
                               fmt::format("'{}' is not a time such as 500ms or 10s", text));
  }
  return *parsed;
}

// ------------------------------------------------------------------ the listener

// Blocks SIGINT and SIGTERM and returns a descriptor that becomes readable when one arrives.
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
  const net::SocketAddress address = parsed("--listen", net::SocketAddress::parse(options.listen));
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
             counters.limited + counters.rejected, counters.counted, counters.garbage);
}

// ------------------------------------------------------------------ the checks

std::optional<unsigned> told_trim_bytes(const base::Environment& environment) {
  const std::int64_t bytes = value_or_throw(environment.number("SPILLWAY_TRIM_BYTES"));
  return environment.has("SPILLWAY_TRIM_BYTES") ? std::optional(static_cast<unsigned>(bytes))
                                                : std::nullopt;
}

doctor::TrimOptions trim_options(const DoctorOptions& options) {
  const base::Result<base::BitRate> rate = base::parse_rate(options.trim_rate);
  if (!rate.ok()) {
    throw CLI::ValidationError("--trim-rate", rate.status().message());
  }
  const base::Duration length = duration_of("--trim-for", options.trim_for);
  if (length > base::seconds(kMaxTrimSeconds)) {
    throw CLI::ValidationError("--trim-for", fmt::format("at most {}s", kMaxTrimSeconds));
  }
  return {.rate = *rate, .length = length};
}

doctor::Findings run_checks(const DoctorOptions& options) {
  const doctor::TrimOptions trims = trim_options(options);
  const base::Environment environment = base::Environment::of_process();
  if (options.peer.empty()) {
    return doctor::check_this_host();
  }
  const net::SocketAddress peer = parsed("--peer", doctor::resolve_peer(options.peer));
  doctor::Findings findings = doctor::check_this_host();
  append(findings, doctor::check_path_to(peer, trims, told_trim_bytes(environment)));
  return findings;
}

void examine(const DoctorOptions& options) {
  const doctor::Findings findings = run_checks(options);
  if (options.json) {
    fmt::print("{}\n", findings_json(findings).dump(2, ' ', true,
                                                    nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}", findings_text(findings, wants_colours()));
  }
  const doctor::Severity worst = worst_of(findings);
  if (worst >= doctor::Severity::kWarning) {
    throw CommandExit{worst == doctor::Severity::kError ? kExitErrors : kExitWarnings};
  }
}

void add_listen_options(CLI::App& command, DoctorOptions& options, CLI::Option* peer) {
  // Without a value, `listen` stays empty: all addresses.
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
