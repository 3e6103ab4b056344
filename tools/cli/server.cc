// SPDX-License-Identifier: Apache-2.0
//
// `spillway server`: one of a job's parameter servers; runs until all workers have left.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/environment.h"
#include "base/text.h"
#include "comm/communicator.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"

namespace spillway::cli {
namespace {

constexpr std::chrono::milliseconds kSignalLook{100};  // interval of signal checks

struct ServerOptions {
  // Unset options come from the environment.
  std::optional<std::uint16_t> workers;
  std::optional<std::uint16_t> servers;
  std::uint16_t index = 0;
  std::string rendezvous;
  std::string patience = "600s";
  std::optional<unsigned> threads;
  bool json = false;
  bool is_quiet = false;
};

// ------------------------------------------------------------------ signals

std::atomic<bool> has_workers{false};
std::atomic<int> asked_to_end{0};

// Exits at once if no workers have come yet: there is nobody to notify.
void on_end_signal(int signal_number) {
  if (!has_workers) {
    ::_exit(128 + signal_number);
  }
  asked_to_end = signal_number;
}

void take_end_signals() {
  struct sigaction action {};
  action.sa_handler = on_end_signal;
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    ::sigaction(signal_number, &action, nullptr);
  }
}

// ------------------------------------------------------------------ serving

launch::ServerPosition seat_of(const ServerOptions& options) {
  const base::Environment told = base::Environment::of_process();
  const auto workers = value_or_throw(told.optional_number("SPILLWAY_WORLD_SIZE"));
  const std::int64_t servers = value_or_throw(told.number("SPILLWAY_SERVERS"));
  if (!options.workers && !workers) {
    throw CLI::RequiredError("--workers (or SPILLWAY_WORLD_SIZE)");
  }
  const auto either = [](std::optional<std::uint16_t> option, std::int64_t variable) {
    return option.value_or(static_cast<std::uint16_t>(variable));
  };
  return {.index = options.index,
          .servers = either(options.servers, told.has("SPILLWAY_SERVERS") ? servers : 1),
          .workers = either(options.workers, workers.value_or(0)),
          .place = options.rendezvous};
}

std::unique_ptr<comm::Communicator> join(const ServerOptions& options,
                                         const launch::ServerPosition& position) {
  const base::Result<base::Duration> patience = base::parse_duration(options.patience);
  if (!patience.ok() || *patience <= base::Duration()) {
    throw CLI::ValidationError("--patience", "must be a time such as 500ms or 600s");
  }
  comm::CommunicatorConfig communicator;
  communicator.name = "server";
  communicator.serves = position;
  communicator.threads = options.threads;
  communicator.rendezvous_patience = *patience;
  return value_or_throw(comm::Communicator::create(communicator));
}

base::Status serve(comm::Communicator& communicator) {
  bool is_aborted = false;
  while (true) {
    if (const std::optional<base::Status> end = communicator.wait_served(kSignalLook)) {
      return *end;
    }
    if (asked_to_end != 0 && !is_aborted) {
      is_aborted = true;
      throw_unless_ok(communicator.abort(
          fmt::format("the parameter server was ended by signal {}", asked_to_end.load())));
    }
  }
}

// ------------------------------------------------------------------ output

void print_json(const launch::ServerPosition& position, const comm::ServerTotals& totals,
                const base::Status& end) {
  nlohmann::json workers = nlohmann::json::array();
  for (std::size_t rank = 0; rank < totals.workers.size(); ++rank) {
    const observe::PeerMetrics& worker = totals.workers[rank];
    workers.push_back({{"rank", rank},
                       {"late", worker.late_operations},
                       {"missing_packets", worker.lost_packets},
                       {"trimmed_packets", worker.trimmed_packets}});
  }
  const nlohmann::json out = {{"server", position.index},
                              {"servers", position.servers},
                              {"operations", totals.operations},
                              {"tensor_bytes", totals.tensor_bytes},
                              {"wire_bytes_sent", totals.wire_bytes_sent},
                              {"workers", workers},
                              {"error", end.ok() ? "" : end.message()}};
  fmt::print("{}\n", out.dump(2));
}

void print_text(const launch::ServerPosition& position, const comm::ServerTotals& totals) {
  fmt::print("parameter server {} of {}: {} operations on {} bytes of tensors, {} bytes sent\n",
             position.index, position.servers, totals.operations, totals.tensor_bytes,
             totals.wire_bytes_sent);
  for (std::size_t rank = 0; rank < totals.workers.size(); ++rank) {
    if (totals.workers[rank].late_operations > 0) {
      fmt::print("rank {} was late for {} of them\n", rank, totals.workers[rank].late_operations);
    }
  }
}

void run(const ServerOptions& options) {
  const launch::ServerPosition position = seat_of(options);
  take_end_signals();
  const std::unique_ptr<comm::Communicator> communicator = join(options, position);
  has_workers = true;
  const base::Status end = serve(*communicator);
  const comm::ServerTotals totals = communicator->server_totals();
  if (options.json) {
    print_json(position, totals, end);
  } else if (!options.is_quiet) {
    print_text(position, totals);
  }
  throw_unless_ok(end);
}

void add_options(CLI::App& command, ServerOptions& options) {
  command.add_option("--workers", options.workers, "Ranks of the job; else SPILLWAY_WORLD_SIZE")
      ->check(whole_number(1, 4095));
  command
      .add_option("--servers", options.servers,
                  "Parameter servers of the job; else SPILLWAY_SERVERS, else 1")
      ->check(whole_number(1, 4095));
  command.add_option("--index", options.index, "Which of them this is, from 0")
      ->capture_default_str()
      ->check(whole_number(0, 4094));
  command.add_option("--rendezvous", options.rendezvous,
                     "HOST:PORT where all meet, at worker 0's host; else SPILLWAY_COMM_ID");
  command.add_option("--patience", options.patience, "How long to wait for the workers to come")
      ->capture_default_str();
  command
      .add_option("--threads", options.threads,
                  "Threads that calculate; by default as the machine allows")
      ->check(whole_number(0, 64));
  command.add_flag("--json", options.json, "Print the summary at the end as JSON");
  command.add_flag("--quiet", options.is_quiet, "Print no summary");
}

}  // namespace

void add_server(CLI::App& app) {
  const auto options = std::make_shared<ServerOptions>();
  CLI::App* command = app.add_subcommand("server", "A parameter server: adds up what workers push");
  add_options(*command, *options);
  command->footer(
      "Ends when all workers have left. Workers are told SPILLWAY_SERVERS and SPILLWAY_COMM_ID.\n"
      "Exit codes: 0 all workers were done, 1 something failed, 2 wrong usage.\n"
      "Examples:\n"
      "  spillway server --workers 4 --rendezvous 10.0.0.1:7100\n"
      "  spillway server --workers 4 --servers 2 --index 1 --rendezvous 10.0.0.1:7100 --json\n"
      "  SPILLWAY_SERVERS=2 SPILLWAY_COMM_ID=10.0.0.1:7100 torchrun ... train.py");
  command->callback([options] { run(*options); });
}

}  // namespace spillway::cli
