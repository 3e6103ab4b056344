// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/allreduce/ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "lab/rank_environment.h"
#include "lab/rank_group.h"
#include "net/system_call.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {

// ------------------------------------------------------------------ a child process

std::uint16_t free_tcp_port(const net::SocketAddress& address) {
  const net::SocketAddress any = address.with_port(0);
  const net::UniqueFd socket(::socket(any.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::bind(socket.get(), any.data(), any.size()) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    throw CommandError("there is no free TCP port at " + any.to_string());
  }
  return net::SocketAddress::from(bound).port();
}

namespace {

constexpr int kFarewellMilliseconds = 1000;
constexpr int kStepMilliseconds = 10;

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// Runs in the child between fork and exec. System calls only: the parent may have threads.
[[noreturn]] void become(char* const* argv, char* const* environment, int stream, int death_signal,
                         pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, death_signal);
  if (::getppid() != parent) {
    ::_exit(127);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(stream, STDIN_FILENO);
  ::dup2(stream, STDOUT_FILENO);
  ::execvpe(argv[0], argv, environment);
  ::_exit(127);
}

}  // namespace

HelperProcess::HelperProcess(const HelperCommand& command) : name_(command.argv.front()) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw CommandError("cannot make a pair of sockets: see ulimit -n");
  }
  stream_ = net::UniqueFd(ends[0]);
  const net::UniqueFd others(ends[1]);
  const std::vector<char*> argv = pointers_to(command.argv);
  const std::vector<char*> environment = pointers_to(command.environment);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    become(argv.data(), environment.data(), others.get(), command.death_signal, parent);
  }
  if (pid_ < 0) {
    throw CommandError(fmt::format("cannot start {}: see ulimit -u", name_));
  }
}

HelperProcess::~HelperProcess() {
  ::shutdown(stream_.get(), SHUT_WR);
  if (!has_ended_within(kFarewellMilliseconds)) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

bool HelperProcess::has_ended_within(int milliseconds) const {
  for (int waited = 0; waited < milliseconds; waited += kStepMilliseconds) {
    if (::waitpid(pid_, nullptr, WNOHANG) != 0) {
      return true;
    }
    ::usleep(kStepMilliseconds * 1000);
  }
  return false;
}

void HelperProcess::send_line(const std::string& line) {
  const std::string text = line + "\n";
  // A line fits into the socket's buffer, so it is sent as a whole or not at all.
  if (::send(stream_.get(), text.data(), text.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(text.size())) {
    throw CommandError(fmt::format("{} has ended", name_));
  }
}

std::string HelperProcess::read_line() {
  std::array<char, 65536> buffer;
  std::size_t end = unread_.find('\n');
  while (end == std::string::npos) {
    const ssize_t size = ::read(stream_.get(), buffer.data(), buffer.size());
    if (size <= 0 || unread_.size() > kMaxAnswerBytes) {
      return {};
    }
    unread_.append(buffer.data(), static_cast<std::size_t>(size));
    end = unread_.find('\n');
  }
  const std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  return line;
}

// ------------------------------------------------------------------ the ranks of a job

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
          "server",
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
