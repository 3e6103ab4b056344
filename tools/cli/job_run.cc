// SPDX-License-Identifier: Apache-2.0
//
// `spillway job run`: starts this machine's processes of a job, and keeps the others running when
// one dies. torchrun would end all of them, which is right for jobs that cannot continue.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/own_file.h"
#include "base/text.h"
#include "elastic/job_query.h"
#include "launch/launch.h"
#include "launch/secret.h"
#include "observe/log.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"

namespace spillway::cli {
namespace {

struct JobRunOptions {
  std::uint32_t processes = 1;
  std::uint32_t first = 0;
  std::uint32_t world = 0;  // 0: as many as processes
  std::string master;       // required if other machines take part
  std::uint32_t respawn = 1'000'000;
  std::vector<std::string> command;
};

constexpr base::Duration kLookPatience = base::seconds(1);
constexpr base::Duration kReplacePatience = base::seconds(15);
constexpr std::chrono::milliseconds kLook{50};
// Period of asking the job whether newcomers have joined it.
constexpr base::Duration kJoinLook = base::milliseconds(500);
// Newcomers started for one place, if each ends before it has joined the job. A failure may be
// passing, such as a member that died while it was asked; a broken script fails every time.
constexpr std::uint32_t kMaxStarts = 3;

std::atomic<int> end_signal{0};

void on_job_signal(int number) {
  end_signal = number;
}

void take_job_signals() {
  struct sigaction action {};
  action.sa_handler = on_job_signal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    ::sigaction(number, &action, nullptr);
  }
}

std::uint32_t world_of(const JobRunOptions& options) {
  return options.world == 0 ? options.processes : options.world;
}

launch::Place master_of(const JobRunOptions& options) {
  const base::Result<launch::Place> place = launch::parse_place(options.master);
  if (!place.ok()) {
    throw CLI::ValidationError(
        "--master",
        fmt::format("'{}' is not HOST:PORT of the machine with rank 0, such as host0:29500",
                    options.master));
  }
  return *place;
}

// Checks options against each other; parsing has checked each by itself.
void check_options(const JobRunOptions& options) {
  if (!options.master.empty()) {
    static_cast<void>(master_of(options));
  }
  const std::uint32_t world = world_of(options);
  if (world < options.processes) {
    throw CLI::ValidationError("--world",
                               fmt::format("{} processes start here, so it must be from {} to {}",
                                           options.processes, options.processes, kMaxJobRanks));
  }
  if (options.first > world - options.processes) {
    throw CLI::ValidationError(
        "--first", fmt::format("ranks {} to {} would start here, in a world of {}: it must be from "
                               "0 to {}; --world counts the processes of all machines",
                               options.first, options.first + options.processes - 1, world,
                               world - options.processes));
  }
  if (world > options.processes && options.master.empty()) {
    throw CLI::ValidationError(
        "--master", fmt::format("must say HOST:PORT of the machine with rank 0: only {} of {} "
                                "processes start here",
                                options.processes, world));
  }
}

// The processes that this command started.
class JobProcesses {
 public:
  explicit JobProcesses(const JobRunOptions& options) : options_(options) {
    const base::Environment told = base::Environment::of_process();
    ticket_file_ = told.text("SPILLWAY_JOB_FILE");
    if (ticket_file_.empty()) {
      const std::string folder = base::runtime_folder(told);
      if (const base::Status status = base::prepare_own_folder(folder); !status.ok()) {
        throw CommandError(status.message() + "; or set SPILLWAY_JOB_FILE");
      }
      ticket_file_ = fmt::format("{}/job-{}", folder, ::getpid());
      ::setenv("SPILLWAY_JOB_FILE", ticket_file_.c_str(), 1);
      owns_file_ = true;
    }
    // Nobody outside can reach a job of this machine alone: then it needs no secret.
    if (options.master.empty() && told.text("SPILLWAY_SOCKET_IFNAME").empty()) {
      ::setenv("SPILLWAY_SOCKET_IFNAME", "=lo", 1);
    }
  }
  ~JobProcesses() {
    if (owns_file_) {
      std::error_code ignored;
      std::filesystem::remove(ticket_file_, ignored);
    }
  }

  void start_founders() {
    const launch::Place master =
        options_.master.empty() ? launch::Place{"127.0.0.1", free_port()} : master_of(options_);
    const std::uint32_t world = world_of(options_);
    for (std::uint32_t i = 0; i < options_.processes; ++i) {
      start({{"RANK", std::to_string(options_.first + i)},
             {"WORLD_SIZE", std::to_string(world)},
             {"LOCAL_RANK", std::to_string(i)},
             {"LOCAL_WORLD_SIZE", std::to_string(options_.processes)},
             {"MASTER_ADDR", master.host},
             {"MASTER_PORT", std::to_string(master.port)}},
            {.local_rank = i});
    }
  }

  // Returns when all have ended: true if the job completed.
  bool watch() {
    while (!living_.empty()) {
      int status = 0;
      const pid_t ended = ::waitpid(-1, &status, WNOHANG);
      if (const auto known = living_.find(ended); known != living_.end()) {
        const Process process = known->second;
        living_.erase(known);
        note_end(ended, process, status);
      } else if (ended <= 0) {
        forward_signal();
        note_joined();
        replace_if_possible();
        std::this_thread::sleep_for(kLook);
      }
    }
    return is_well_;
  }

 private:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  struct Process {
    std::uint32_t local_rank = 0;
    // 0 for a process that is part of the job. For a newcomer that has not joined it yet: how many
    // in a row were started for its place, this one included.
    std::uint32_t starts = 0;
    bool is_founder = true;
  };
  // A standby to be started for a dead process while the job lives.
  struct Owed {
    Process process{};
    base::Instant until{};
  };

  void note_end(pid_t ended, const Process& process, int status) {
    const bool is_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    const bool never_joined = process.starts > 0 && !is_well;
    if (is_well && process.starts == 0) {
      is_over_ = true;  // a member leaves with success once all members have done all steps
      end_newcomers();
    }
    // A process outside the job does not know how the job ended, nor does one that was joining at
    // its end.
    if (!never_joined && (process.is_founder || !is_over_)) {
      is_well_ = is_well;
    }
    if (is_well || living_.empty() || end_signal != 0 || (is_over_ && !process.is_founder)) {
      return;
    }
    // A process that exited after it had joined would exit again, or was removed. One that never
    // joined counts as a start, however it ended: it may be killed each time, as for its memory.
    const bool may_succeed =
        never_joined ? process.starts < kMaxStarts : static_cast<bool>(WIFSIGNALED(status));
    const bool is_replaced = may_succeed && replaced_ < options_.respawn;
    const std::uint32_t starts = never_joined ? process.starts + 1 : 1;
    std::string next;
    if (never_joined && is_replaced) {
      next = fmt::format("; start {} of {} for its place follows", starts, kMaxStarts);
    } else if (never_joined) {
      next = fmt::format("; nothing more is started for its place after {} of {} starts",
                         process.starts, kMaxStarts);
    }
    fmt::print(stderr, "spillway: process {} {}{}; {} others go on{}\n", ended, how(status),
               never_joined ? " before it joined the job" : "", living_.size(), next);
    if (is_replaced) {
      ++replaced_;
      owed_.push_back(
          {{process.local_rank, starts, false}, base::MonotonicClock().now() + kReplacePatience});
    }
  }

  // Processes that are still starting would find no job to join.
  void end_newcomers() {
    owed_.clear();
    for (const auto& [pid, process] : living_) {
      if (process.starts > 0) {
        ::kill(pid, SIGTERM);
      }
    }
  }

  // A member's name ends with its process id. Under a command that starts the script as a child,
  // no newcomer is recognised: each then counts as not joined.
  void note_joined() {
    const auto waits = [](const auto& each) { return each.second.starts > 0; };
    const base::Instant now = base::MonotonicClock().now();
    if (now < next_join_look_ || std::ranges::none_of(living_, waits)) {
      return;
    }
    const std::string status = living_job().status;
    for (auto& [pid, process] : living_) {
      const std::string name = fmt::format("{}:{}", observe::host_name(), pid);
      if (status.find(base::json_quoted(name)) != std::string::npos) {
        process.starts = 0;
      }
    }
    next_join_look_ = base::MonotonicClock().now() + kJoinLook;
  }

  // Waits for a living ticket: the file may hold the dead process's until another rank 0 writes it.
  void replace_if_possible() {
    if (owed_.empty() || end_signal != 0) {
      return;
    }
    const Process& next = owed_.front().process;
    if (const std::string ticket = living_job().ticket; !ticket.empty()) {
      start(newcomer_variables(ticket, next.local_rank), next);
      owed_.pop_front();
    } else if (base::MonotonicClock().now() > owed_.front().until) {
      owed_.pop_front();
    }
  }

  static std::string how(int status) {
    return WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                               : fmt::format("ended with code {}", WEXITSTATUS(status));
  }

  // A job that answers; empty if it has not begun or is over.
  struct LivingJob {
    std::string ticket;
    std::string status;
  };
  LivingJob living_job() const {
    const base::Result<std::string> text = elastic::ticket_text_in(ticket_file_);
    const base::Result<elastic::Ticket> ticket = elastic::parse_ticket(text.ok() ? *text : "");
    const base::Result<launch::Secret> secret =
        launch::secret_from(base::Environment::of_process(), {});
    if (!ticket.ok() || !secret.ok()) {
      return {};
    }
    const base::Result<std::string> status =
        elastic::ask_job(*ticket, secret->bytes(), "status", kLookPatience);
    return status.ok() ? LivingJob{*text, *status} : LivingJob{};
  }

  void forward_signal() {
    const int number = end_signal;
    if (number == 0 || std::exchange(has_forwarded_, true)) {
      return;
    }
    for (const auto& [pid, process] : living_) {
      ::kill(pid, number);
    }
  }

  void start(const Variables& variables, const Process& process) {
    const pid_t child = ::fork();
    if (child < 0) {
      throw CommandError("cannot start a process: " + std::generic_category().message(errno));
    }
    if (child == 0) {
      for (const auto& [name, value] : variables) {
        ::setenv(name.c_str(), value.c_str(), 1);
      }
      run_command(options_.command);
    }
    living_.emplace(child, process);
  }

  const JobRunOptions& options_;
  std::string ticket_file_;
  bool owns_file_ = false;
  std::map<pid_t, Process> living_;
  std::deque<Owed> owed_;
  std::uint32_t replaced_ = 0;
  base::Instant next_join_look_{};
  bool is_over_ = false;
  bool is_well_ = false;  // of the last member that ended, or of all once the job is over
  bool has_forwarded_ = false;
};

void run_job(const JobRunOptions& options) {
  check_options(options);
  take_job_signals();
  JobProcesses processes(options);
  processes.start_founders();
  if (!processes.watch()) {
    throw CommandExit{kExitFailure};
  }
}

}  // namespace

void add_job_run(CLI::App& noun) {
  const auto options = std::make_shared<JobRunOptions>();
  CLI::App* verb = noun.add_subcommand(
      "run",
      "Starts processes; when one is killed the others go on, and a standby is started for it");
  verb->add_option("-n,--processes", options->processes, "To start here, standbys included")
      ->required()
      ->check(whole_number(1, kMaxJobRanks));
  verb->add_option("--first", options->first, "Rank of the first of them, with other machines")
      ->capture_default_str()
      ->check(whole_number(0, kMaxJobRanks - 1));
  verb->add_option("--world", options->world, "Processes of all machines; else those of this one")
      ->check(whole_number(1, kMaxJobRanks));
  verb->add_option("--master", options->master,
                   "HOST:PORT of the machine with rank 0, with other machines");
  verb->add_option("--respawn", options->respawn, "Start at most so many in place of dead ones")
      ->capture_default_str()
      ->check(whole_number(0, UINT32_MAX));
  verb->add_option("COMMAND", options->command, "The job's script")->required();
  verb->positionals_at_end();
  verb->footer(
      "Exit codes: 0 the job came to its end, 1 it did not, 2 wrong usage.\n"
      "Examples:\n"
      "  spillway job run -n 5 -- python3 train.py            elastic(..., standbys=1): 4 train\n"
      "  spillway job run -n 4 --first 4 --world 8 --master host0:29500 -- python3 train.py");
  verb->callback([options] { run_job(*options); });
}

}  // namespace spillway::cli
