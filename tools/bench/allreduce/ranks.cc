// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/allreduce/ranks.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "lab/rank_environment.h"
#include "lab/rank_group.h"
#include "lab/rank_process.h"
#include "net/system_call.h"
#include "tools/bench/allreduce/helper_process.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {
namespace {

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

std::vector<std::string> own_command(const std::string& mark) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) {
    words.push_back(word);
  }
  words.front() = own_path();
  words.push_back(mark);
  return words;
}

// Overrides what a launcher or lab may have set for other ranks; an empty variable counts as unset.
std::vector<std::string> rank_environment(unsigned rank, const LocalJob& job,
                                          const std::string& meeting) {
  return lab::with_variables(
      lab::current_environment(),
      {fmt::format("SPILLWAY_RANK={}", rank), fmt::format("SPILLWAY_WORLD_SIZE={}", job.ranks),
       fmt::format("SPILLWAY_LOCAL_RANK={}", rank),
       fmt::format("SPILLWAY_LOCAL_WORLD_SIZE={}", job.ranks), "SPILLWAY_COMM_ID=" + meeting,
       "SPILLWAY_PEERS=", "SPILLWAY_LISTEN=", fmt::format("SPILLWAY_SERVERS={}", job.servers)});
}

std::vector<std::string> server_command(unsigned index, const LocalJob& job) {
  return {own_path(),
          "ps",
          "--quiet",
          fmt::format("--workers={}", job.ranks),
          fmt::format("--servers={}", job.servers),
          fmt::format("--index={}", index)};
}

class Ranks {
 public:
  Ranks() = default;
  ~Ranks() { send_all(SIGKILL), wait_until_all_ended(); }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void start(const LocalJob& job, const std::string& mark);
  int wait_until_all_ended();

 private:
  struct Rank {
    pid_t pid = -1;
    bool has_ended = false;
  };

  bool is_any_left() const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return !rank.has_ended; });
  }
  void start_one(const std::vector<std::string>& argv, const std::vector<std::string>& environment);
  int next_signal() const;
  void reap();
  void note_end(std::size_t rank, int wait_status);
  void send_all(int signal_number) const;
  void end_soon() { deadline_ = deadline_.value_or(clock_.now() + kRankGrace); }

  base::MonotonicClock clock_;
  std::vector<Rank> ranks_;
  std::optional<base::Instant> deadline_;  // all are killed then
  bool has_failed_ = false;
  int interrupted_by_ = 0;
};

void Ranks::start(const LocalJob& job, const std::string& mark) {
  const net::SocketAddress loopback = value_or_throw(net::SocketAddress::parse("127.0.0.1:0"));
  const std::string meeting = loopback.with_port(free_tcp_port(loopback)).to_string();
  for (unsigned rank = 0; rank < job.ranks; ++rank) {
    start_one(own_command(mark), rank_environment(rank, job, meeting));
  }
  for (unsigned index = 0; index < job.servers; ++index) {
    start_one(server_command(index, job), rank_environment(job.ranks + index, job, meeting));
  }
}

void Ranks::start_one(const std::vector<std::string>& argv,
                      const std::vector<std::string>& environment) {
  lab::RankLaunch launch;
  launch.host = "this machine";
  launch.argv = argv;
  launch.environment = environment;
  launch.own_terminal = true;
  ranks_.push_back({value_or_throw(lab::start_rank(launch)).pid});
}

// Returns 0 if no signal came in time.
int Ranks::next_signal() const {
  sigset_t expected = lab::end_signals();
  ::sigaddset(&expected, SIGCHLD);
  if (!deadline_) {
    return ::sigwaitinfo(&expected, nullptr);
  }
  const base::Duration left = std::max(base::Duration(), *deadline_ - clock_.now());
  const timespec timeout = net::timespec_of(left);
  return std::max(0, ::sigtimedwait(&expected, nullptr, &timeout));
}

int Ranks::wait_until_all_ended() {
  for (reap(); is_any_left(); reap()) {
    const int signal_number = next_signal();
    if (signal_number == 0) {
      send_all(SIGKILL);
      deadline_.reset();
    } else if (signal_number > 0 && signal_number != SIGCHLD) {
      interrupted_by_ = signal_number;
      send_all(signal_number);
      end_soon();
    }
  }
  return interrupted_by_ != 0 ? 128 + interrupted_by_ : has_failed_ ? kExitFailure : kExitOk;
}

void Ranks::reap() {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    int status = 0;
    if (!ranks_[rank].has_ended && ::waitpid(ranks_[rank].pid, &status, WNOHANG) > 0) {
      ranks_[rank].has_ended = true;
      note_end(rank, status);
    }
  }
}

// A rank that failed by itself has printed the reason; one that was killed cannot.
void Ranks::note_end(std::size_t rank, int wait_status) {
  if (lab::exit_code_of(wait_status) == 0) {
    return;
  }
  if (WIFSIGNALED(wait_status) && !has_failed_ && interrupted_by_ == 0) {
    fmt::print(stderr, "spillway: rank {} was killed by signal {}\n", rank, WTERMSIG(wait_status));
  }
  has_failed_ = true;
  end_soon();
}

void Ranks::send_all(int signal_number) const {
  for (const Rank& rank : ranks_) {
    if (!rank.has_ended) {
      ::kill(rank.pid, signal_number);
    }
  }
}

}  // namespace

int run_ranks_here(const LocalJob& job, const std::string& mark) {
  const lab::BlockedSignals blocked;
  Ranks group;
  group.start(job, mark);
  return group.wait_until_all_ended();
}

}  // namespace spillway::bench
