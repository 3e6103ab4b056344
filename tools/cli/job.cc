// SPDX-License-Identifier: Apache-2.0
//
// `spillway job`: inspects and changes a running job whose members may change.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/own_file.h"
#include "base/text.h"
#include "comm/rendezvous/socket.h"
#include "elastic/job_query.h"
#include "launch/secret.h"
#include "net/address.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

constexpr base::Duration kStatusPatience = base::seconds(5);

struct JobOptions {
  std::string ticket;  // empty: SPILLWAY_JOB, else the file SPILLWAY_JOB_FILE
  bool json = false;
  std::string patience = "60s";
  std::vector<std::uint32_t> ranks;
  std::string host;
  bool keeps_processes = false;
  std::uint32_t places = 1;
  std::uint32_t local_rank = 0;
  bool watches = false;
  std::string every = "1s";
  std::uint32_t times = 0;
  std::string page;
  std::vector<std::string> command;
};

// ------------------------------------------------------------------ asking

// Having no ticket at all is a usage error. A missing ticket file is not: it may still be written.
std::string ticket_text(const JobOptions& options) {
  const base::Environment told = base::Environment::of_process();
  if (!options.ticket.empty()) {
    return options.ticket;
  }
  if (const std::string text = told.text("SPILLWAY_JOB"); !text.empty()) {
    return text;
  }
  const std::string path = told.text("SPILLWAY_JOB_FILE");
  if (path.empty()) {
    throw CLI::ValidationError(
        "--ticket",
        "which job? Say --ticket, or set SPILLWAY_JOB or SPILLWAY_JOB_FILE as its processes have "
        "it");
  }
  if (!std::filesystem::exists(path)) {
    throw CommandError(
        fmt::format("there is no ticket in {}: the job has not begun, or has another "
                    "SPILLWAY_JOB_FILE",
                    path));
  }
  return value_or_throw(elastic::ticket_text_in(path));
}

elastic::Ticket ticket_in(const JobOptions& options, const std::string& text) {
  const base::Result<elastic::Ticket> ticket = elastic::parse_ticket(text);
  if (!options.ticket.empty()) {
    return parsed("--ticket", ticket);
  }
  if (base::Environment::of_process().has("SPILLWAY_JOB")) {
    return parsed("SPILLWAY_JOB", ticket);
  }
  return value_or_throw(ticket);
}

std::string ask(const JobOptions& options, const std::string& question, base::Duration limit) {
  const elastic::Ticket ticket = ticket_in(options, ticket_text(options));
  const base::Environment told = base::Environment::of_process();
  const launch::Secret secret = value_or_throw(launch::secret_from(told, {}));
  return value_or_throw(elastic::ask_job(ticket, secret.bytes(), question, limit));
}

nlohmann::json status_of(const JobOptions& options) {
  const std::string text = ask(options, "status", kStatusPatience);
  nlohmann::json status = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (status.is_discarded()) {
    throw CommandError("the job answered what is no status: " + text.substr(0, 200));
  }
  return status;
}

// ------------------------------------------------------------------ text output

// Prints ASCII only: terminals act on some other characters.
std::string json_text(const nlohmann::json& value, int indent = -1) {
  return value.dump(indent, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

// A member's rank, or its role if it has none.
std::string standing_of(const nlohmann::json& member) {
  const nlohmann::json& rank = member.at("rank");
  return !rank.is_null()                ? std::to_string(rank.get<int>())
         : member.value("waits", false) ? "newcomer"
                                        : "standby";
}

std::string host_of(const nlohmann::json& member) {
  const std::string name = member.value("name", "");
  return name.substr(0, name.rfind(':'));
}

std::string sentence_of(const nlohmann::json& status) {
  const nlohmann::json& last = status.at("last_change");
  std::string text = fmt::format("job {}: epoch {}, step {}; last change: {}\n",
                                 status.value("job", "").substr(0, 8), status.value("epoch", 0),
                                 status.value("step", 0), last.value("why", ""));
  if (const std::int64_t told = last.value("interrupted_ns", std::int64_t{0}); told > 0) {
    const auto after_ms = [&](const char* name) {
      return static_cast<double>(last.value(name, std::int64_t{0}) - told) / 1e6;
    };
    text += fmt::format("  stood still after {:.1f} ms, agreed after {:.1f} ms\n",
                        after_ms("parked_ns"), after_ms("decided_ns"));
  }
  if (const std::string waits = status.value("waits_for", ""); !waits.empty()) {
    text += fmt::format("  waits for {}\n", waits);
  }
  for (const auto& straggler : status.at("stragglers")) {
    text += fmt::format("  straggler: {}\n", straggler.get<std::string>());
  }
  return base::printable(text, "\n");
}

std::string table_of(const nlohmann::json& status) {
  TextTable table({"rank", "process", "address", "id"});
  for (const auto& member : status.at("members")) {
    table.add_row({standing_of(member), member.value("name", ""), member.value("address", ""),
                   member.value("id", "").substr(0, 8)});
  }
  return table.to_string();
}

std::string html_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return out;
}

// A page that needs no network and refreshes itself.
std::string page_of(const nlohmann::json& status, const std::vector<std::string>& changes) {
  std::string rows;
  for (const auto& member : status.at("members")) {
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", standing_of(member),
                        html_escaped(member.value("name", "")),
                        html_escaped(member.value("address", "")));
  }
  std::string listed;
  for (const std::string& change : changes) {
    listed += fmt::format("<li>{}</li>\n", html_escaped(change));
  }
  return fmt::format(
      "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=2>\n"
      "<title>job {0}</title><style>body{{font:15px sans-serif;margin:2em}}"
      "td,th{{padding:.2em 1em;text-align:left}}</style>\n"
      "<h1>Job {0}</h1><p>Epoch {1}, step {2}</p>\n"
      "<table><tr><th>rank</th><th>process</th><th>address</th></tr>\n{3}</table>\n"
      "<h2>Changes</h2><ol reversed>\n{4}</ol>\n",
      html_escaped(status.value("job", "").substr(0, 8)), status.value("epoch", 0),
      status.value("step", 0), rows, listed);
}

void write_page(const std::string& path, const std::string& page) {
  const base::Status status = base::replace_file(path, page, base::Readers::kEveryone);
  if (!status.ok()) {
    throw CommandError(status.message());
  }
}

// ------------------------------------------------------------------ verbs

void print_status(const JobOptions& options) {
  const nlohmann::json status = status_of(options);
  if (options.json) {
    fmt::print("{}\n", json_text(status, 2));
  } else {
    fmt::print("{}{}", table_of(status), sentence_of(status));
  }
}

void change(const JobOptions& options, const std::string& question) {
  const base::Result<base::Duration> patience = base::parse_duration(options.patience);
  if (!patience.ok() || *patience <= base::Duration()) {
    throw CLI::ValidationError("--patience", "must be a time such as 500ms or 60s");
  }
  const std::string answer = ask(options, question, *patience);
  constexpr std::string_view kRefused = "refused: ";
  if (answer.starts_with(kRefused)) {
    throw CommandError(answer.substr(kRefused.size()));
  }
  if (options.json) {
    fmt::print("{}\n", json_text({{"answer", answer}}));
  } else {
    fmt::print("{}\n", base::printable(answer));
  }
}

std::vector<std::uint32_t> ranks_on(const std::string& host, const JobOptions& options) {
  std::vector<std::uint32_t> ranks;
  const nlohmann::json status = status_of(options);
  for (const auto& member : status.at("members")) {
    if (host_of(member) == host && !member.at("rank").is_null()) {
      ranks.push_back(member.at("rank").get<std::uint32_t>());
    }
  }
  if (ranks.empty()) {
    throw CommandError(
        fmt::format("no rank of the job is on {}; `spillway job status` names the hosts", host));
  }
  return ranks;
}

void remove(const JobOptions& options) {
  if (options.ranks.empty() == options.host.empty()) {
    throw CLI::ValidationError("RANK", "name the ranks to remove, or their host with --host");
  }
  const std::vector<std::uint32_t> ranks =
      options.host.empty() ? options.ranks : ranks_on(options.host, options);
  change(options,
         fmt::format("{} {}", options.keeps_processes ? "move" : "remove", fmt::join(ranks, " ")));
}

void watch_job(const JobOptions& options) {
  const base::Result<base::Duration> every = base::parse_duration(options.every);
  if (!every.ok() || *every <= base::Duration()) {
    throw CLI::ValidationError("--every", "must be a time such as 500ms or 2s");
  }
  std::vector<std::string> changes;
  std::uint32_t epoch = 0;
  for (std::uint32_t looks = 0; options.times == 0 || looks < options.times; ++looks) {
    if (looks > 0) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(every->count()));
    }
    const nlohmann::json status = status_of(options);
    if (status.value("epoch", 0U) != epoch) {
      epoch = status.value("epoch", 0U);
      changes.insert(changes.begin(), fmt::format("epoch {} from step {}: {}", epoch,
                                                  status.at("last_change").value("step", 0),
                                                  status.at("last_change").value("why", "")));
    }
    if (!options.page.empty()) {
      write_page(options.page, page_of(status, changes));
    }
    if (options.json) {
      fmt::print("{}\n", json_text(status));
    } else {
      fmt::print("{}{}\n", table_of(status), sentence_of(status));
    }
    std::fflush(stdout);
  }
}

void join(const JobOptions& options) {
  const std::string text = ticket_text(options);
  ticket_in(options, text);  // checks the ticket before the script starts
  for (const auto& [name, value] : newcomer_variables(text, options.local_rank)) {
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  run_command(options.command);
}

// ------------------------------------------------------------------ options

CLI::App* add_verb(CLI::App& noun, const std::string& name, const std::string& what,
                   const std::shared_ptr<JobOptions>& options) {
  CLI::App* verb = noun.add_subcommand(name, what);
  verb->add_option("--ticket", options->ticket,
                   "The job's, of any of its members; else SPILLWAY_JOB, else what is in "
                   "SPILLWAY_JOB_FILE");
  return verb;
}

void add_waiting(CLI::App& verb, const std::shared_ptr<JobOptions>& options) {
  verb.add_option("--patience", options->patience, "How long to wait until it is done")
      ->capture_default_str();
  verb.add_flag("--json", options->json, "Print JSON");
}

void add_status(CLI::App& noun, const std::shared_ptr<JobOptions>& options) {
  CLI::App* verb = add_verb(noun, "status", "Show the members, and what changed last", options);
  CLI::Option* watch = verb->add_flag("--watch", options->watches, "Again and again");
  verb->add_option("--every", options->every, "With --watch: time between two looks")
      ->capture_default_str()
      ->needs(watch);
  verb->add_option("--times", options->times, "With --watch: looks; 0: until the job is gone")
      ->capture_default_str()
      ->check(whole_number(0, UINT32_MAX))
      ->needs(watch);
  verb->add_option("--page", options->page, "With --watch: also write a self-refreshing HTML page")
      ->needs(watch);
  verb->add_flag("--json", options->json, "Print JSON; with --watch one object a line");
  verb->footer(
      "Examples:\n"
      "  spillway job status --json\n"
      "  spillway job status --watch --page job.html");
  verb->callback([options] { options->watches ? watch_job(*options) : print_status(*options); });
}

void add_remove(CLI::App& noun, const std::shared_ptr<JobOptions>& options) {
  CLI::App* verb = add_verb(
      noun, "remove",
      "Standbys take the places of ranks at a step's edge; without standbys the job shrinks",
      options);
  verb->add_option("RANK", options->ranks, "Ranks to remove")
      ->check(whole_number(0, kMaxJobRanks - 1));
  verb->add_option("--host", options->host,
                   "Remove all ranks of this host, as `spillway job status` names it");
  verb->add_flag("--keep", options->keeps_processes,
                 "Keep their processes, which become standbys, instead of ending them");
  add_waiting(*verb, options);
  verb->footer(
      "Examples:\n"
      "  spillway job remove 2\n"
      "  spillway job remove 2 3 --keep\n"
      "  spillway job remove --host host3");
  verb->callback([options] { remove(*options); });
}

void add_grow(CLI::App& noun, const std::shared_ptr<JobOptions>& options) {
  CLI::App* verb =
      add_verb(noun, "grow", "Standbys become ranks behind the last, at a step's edge", options);
  verb->add_option("COUNT", options->places, "How many")
      ->capture_default_str()
      ->check(whole_number(1, kMaxJobRanks));
  add_waiting(*verb, options);
  verb->footer("Example:\n  spillway job grow 2");
  verb->callback([options] { change(*options, fmt::format("grow {}", options->places)); });
}

void add_end(CLI::App& noun, const std::shared_ptr<JobOptions>& options) {
  CLI::App* verb = add_verb(noun, "end", "End all processes at a step's edge", options);
  add_waiting(*verb, options);
  verb->footer("Example:\n  spillway job end");
  verb->callback([options] { change(*options, "end"); });
}

void add_join(CLI::App& noun, const std::shared_ptr<JobOptions>& options) {
  CLI::App* verb = add_verb(noun, "join", "Start a process that becomes a standby", options);
  verb->add_option("--local-rank", options->local_rank, "LOCAL_RANK, by which scripts choose a GPU")
      ->capture_default_str()
      ->check(whole_number(0, kMaxJobRanks - 1));
  verb->add_option("COMMAND", options->command, "The job's script, as its other processes run it")
      ->required();
  verb->positionals_at_end();
  verb->footer("Example:\n  spillway job join -- python3 train.py");
  verb->callback([options] { join(*options); });
}

}  // namespace

std::uint16_t free_port() {
  const std::string words[] = {std::to_string(::getpid()),
                               std::to_string(base::MonotonicClock().now().since_zero().count())};
  for (const launch::Place& place : launch::derived_places("127.0.0.1", words)) {
    const auto address = value_or_throw(net::SocketAddress::parse(place.to_string()));
    if (comm::listen_exactly(address).ok()) {
      return place.port;
    }
  }
  throw CommandError("no port is free for torch's store; try again");
}

std::vector<std::pair<std::string, std::string>> newcomer_variables(const std::string& ticket,
                                                                    std::uint32_t local_rank) {
  return {{"SPILLWAY_JOB", ticket},
          {"RANK", "0"},
          {"WORLD_SIZE", "1"},
          {"LOCAL_RANK", std::to_string(local_rank)},
          {"SPILLWAY_LOCAL_RANK", std::to_string(local_rank)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(free_port())}};
}

void run_command(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  fmt::print(stderr, "spillway: cannot run {}: {}\n", command.front(),
             std::generic_category().message(errno));
  ::_exit(kExitFailure);
}

void add_job(CLI::App& app) {
  const auto options = std::make_shared<JobOptions>();
  CLI::App* noun = app.add_subcommand("job", "A running job whose members may change");
  noun->require_subcommand(1);
  add_status(*noun, options);
  add_remove(*noun, options);
  add_grow(*noun, options);
  add_end(*noun, options);
  add_join(*noun, options);
  add_job_run(*noun);
  noun->footer(
      "A job is one whose script calls spillway.torch.elastic(), or spillway_job_found() in C.\n"
      "Exit codes: 0 done, 1 failed or refused, 2 wrong usage.\n"
      "Examples:\n"
      "  SPILLWAY_JOB_FILE=~/job spillway job run -n 5 -- python3 train.py   and then, there:\n"
      "  spillway job status\n"
      "  spillway job remove 2 --keep\n"
      "  spillway job grow 2\n"
      "  spillway job remove --host host3\n"
      "  spillway job status --watch --page job.html\n"
      "  spillway job join -- python3 train.py");
}

}  // namespace spillway::cli
