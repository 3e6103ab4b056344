// SPDX-License-Identifier: Apache-2.0
#include "lab/rank_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.h"
#include "lab/network/isolation.h"
#include "net/system_call.h"

namespace spillway::lab {

namespace {

constexpr std::size_t kReadBytes = 65536;
constexpr base::Duration kLongestWait = base::seconds(3600);  // poll() takes an int

base::Instant now() {
  return base::MonotonicClock().now();
}

base::Duration duration_of(const timeval& time) {
  return base::seconds(time.tv_sec) + base::microseconds(time.tv_usec);
}

std::string exit_text(int wait_status) {
  return WIFSIGNALED(wait_status) ? fmt::format("was killed by signal {}", WTERMSIG(wait_status))
                                  : fmt::format("exited with {}", WEXITSTATUS(wait_status));
}

}  // namespace

sigset_t end_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    ::sigaddset(&set, signal_number);
  }
  return set;
}

BlockedSignals::BlockedSignals() {
  sigset_t set = end_signals();
  ::sigaddset(&set, SIGCHLD);
  ::sigaddset(&set, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
}

BlockedSignals::~BlockedSignals() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

RankGroup::~RankGroup() {
  send_all(SIGKILL);
  for (const Rank& rank : ranks_) {
    if (!rank.exit_code) {
      ::waitpid(rank.pid, nullptr, 0);
    }
  }
}

base::Status RankGroup::start(const RankLaunch& launch) {
  base::Result<RankProcess> started = start_rank(launch);
  if (!started.ok()) {
    return started.status();
  }
  RankProcess& process = started.value();
  const std::string prefix = output_.prefix ? fmt::format("[{}] ", ranks_.size()) : "";
  if (process.out.valid()) {
    streams_.push_back({std::move(process.out), output_.out, LinePrefixer(prefix)});
    streams_.push_back({std::move(process.err), output_.err, LinePrefixer(prefix)});
  }
  ranks_.push_back({launch, process.pid, std::nullopt});
  return {};
}

GroupOutcome RankGroup::run(int stop_fd, bool stays) {
  sigset_t signals = end_signals();
  ::sigaddset(&signals, SIGCHLD);
  const net::UniqueFd signal_fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  set_deadline(limit_);
  reap();
  while (!all_ended() || (stays && phase_ == Phase::kRunning)) {
    std::vector<pollfd> polled = {{signal_fd.get(), POLLIN, 0}, {stop_fd, POLLIN, 0}};
    for (const Stream& stream : streams_) {
      polled.push_back({stream.source.get(), POLLIN, 0});
    }
    ::poll(polled.data(), polled.size(), wait_milliseconds());
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (polled[i + 2].revents != 0) {
        pump(streams_[i]);
      }
    }
    if (polled[1].revents != 0 && phase_ != Phase::kTerminating && phase_ != Phase::kKilled) {
      request_end(SIGTERM);
    }
    take_signals(signal_fd.get());
    next_phase_if_due();
  }
  drain();
  GroupOutcome outcome;
  for (const Rank& rank : ranks_) {
    outcome.exit_codes.push_back(rank.exit_code.value_or(0));
  }
  outcome.interrupted_by = interrupted_by_;
  outcome.first_failed = first_failed_;
  outcome.over_limit = over_limit_;
  outcome.cpu = cpu_;
  return outcome;
}

bool RankGroup::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.exit_code.has_value(); });
}

bool RankGroup::shares_terminal() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.launch.own_terminal; });
}

bool RankGroup::is_timed() const {
  return phase_ == Phase::kRunning ? limit_ > base::Duration() : phase_ != Phase::kKilled;
}

int RankGroup::wait_milliseconds() const {
  if (!is_timed()) {
    return -1;
  }
  const base::Duration left = std::min(deadline_ - now(), kLongestWait);
  return static_cast<int>(std::max<std::int64_t>(0, left.count() / 1'000'000 + 1));
}

void RankGroup::take_signals(int signal_fd) {
  signalfd_siginfo info = {};
  while (::read(signal_fd, &info, sizeof(info)) == sizeof(info)) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) {
      reap();
    } else if (number == SIGINT && shares_terminal()) {
      continue;  // the terminal sends it to the command, too
    } else if (interrupted_by_ == 0) {
      interrupted_by_ = number;
      request_end(number);
    } else {
      phase_ = Phase::kKilled;
      send_all(SIGKILL);
    }
  }
}

void RankGroup::reap() {
  int status = 0;
  rusage usage = {};
  for (pid_t pid = ::wait4(-1, &status, WNOHANG, &usage); pid > 0;
       pid = ::wait4(-1, &status, WNOHANG, &usage)) {
    cpu_ += duration_of(usage.ru_utime) + duration_of(usage.ru_stime);
    const auto rank = std::find_if(ranks_.begin(), ranks_.end(), [pid](const Rank& candidate) {
      return candidate.pid == pid && !candidate.exit_code;
    });
    if (rank != ranks_.end()) {
      note_end(*rank, status);
    }
  }
}

void RankGroup::note_end(Rank& rank, int wait_status) {
  rank.exit_code = exit_code_of(wait_status);
  if (*rank.exit_code == 0 || phase_ != Phase::kRunning || rank.launch.own_terminal) {
    return;
  }
  phase_ = Phase::kGrace;
  first_failed_ = static_cast<std::size_t>(&rank - ranks_.data());
  set_deadline(grace_);
  const std::string others = all_ended() ? ""
                                         : fmt::format("; the other ranks have {:g} s to end",
                                                       static_cast<double>(grace_.count()) / 1e9);
  write_all(output_.err, fmt::format("spillway: rank {} on {} {}{}\n", *first_failed_,
                                     rank.launch.host, exit_text(wait_status), others));
}

void RankGroup::request_end(int signal_number) {
  phase_ = Phase::kTerminating;
  set_deadline(kKillAfter);
  send_all(signal_number);
}

void RankGroup::send_all(int signal_number) {
  for (const Rank& rank : ranks_) {
    if (!rank.exit_code) {
      // A rank with a terminal is in the caller's process group, which the terminal signals itself.
      ::kill(rank.launch.own_terminal ? rank.pid : -rank.pid, signal_number);
    }
  }
}

void RankGroup::next_phase_if_due() {
  if (!is_timed() || now() < deadline_ || all_ended()) {
    return;
  }
  if (phase_ == Phase::kRunning) {
    end_at_limit();
  } else if (phase_ == Phase::kGrace) {
    request_end(SIGTERM);
  } else {
    phase_ = Phase::kKilled;
    send_all(SIGKILL);
  }
}

void RankGroup::end_at_limit() {
  over_limit_ = true;
  write_all(output_.err,
            fmt::format("spillway: the ranks did not end within {:g} s and are terminated\n",
                        base::seconds_of(limit_)));
  request_end(SIGTERM);
}

void RankGroup::set_deadline(base::Duration from_now) {
  deadline_ = now() + from_now;
}

void RankGroup::pump(Stream& stream) {
  std::array<char, kReadBytes> buffer;
  const ssize_t size = ::read(stream.source.get(), buffer.data(), buffer.size());
  if (size > 0) {
    write_all(stream.sink, stream.lines.feed({buffer.data(), static_cast<std::size_t>(size)}));
  } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
    write_all(stream.sink, stream.lines.finish());
    stream.source = {};  // poll() skips it from now on
  }
}

// Writes what ranks printed before they ended. Does not wait for children that hold a pipe open.
void RankGroup::drain() {
  for (Stream& stream : streams_) {
    pollfd more = {stream.source.get(), POLLIN, 0};
    while (stream.source.valid() && ::poll(&more, 1, 0) > 0) {
      pump(stream);
    }
    write_all(stream.sink, stream.lines.finish());
  }
}

// ------------------------------------------------------------------ one rank

namespace {

struct Pipe {
  net::UniqueFd read;
  net::UniqueFd write;
};

base::Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return net::system_error("make a pipe", errno, "see ulimit -n");
  }
  return Pipe{net::UniqueFd(ends[0]), net::UniqueFd(ends[1])};
}

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

void reset_signals() {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
}

void detach_from_terminal(int out, int err) {
  ::setpgid(0, 0);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
}

// Runs in the child. Returns an errno on failure; otherwise does not return.
int become(const RankLaunch& launch, pid_t parent, int out, int err) {
  if (launch.network_namespace >= 0) {
    if (!enter_network_namespace(launch.network_namespace).ok()) {
      return errno;
    }
    mount_own_sysfs();
  }
  if (!launch.own_terminal) {
    detach_from_terminal(out, err);
  }
  reset_signals();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before that. 0 means that it is outside the process namespace.
  if (::getppid() != parent && ::getppid() != 0) {
    return ECHILD;
  }
  ::execvpe(launch.argv.front().c_str(), pointers_to(launch.argv).data(),
            pointers_to(launch.environment).data());
  return errno;
}

base::Status cannot_run(const RankLaunch& launch, int error) {
  return net::system_error(fmt::format("run '{}' on {}", launch.argv.front(), launch.host), error,
                           error == ENOENT ? "is it installed, and on PATH?" : "");
}

}  // namespace

base::Result<RankProcess> start_rank(const RankLaunch& launch) {
  base::Result<Pipe> out = make_pipe();
  base::Result<Pipe> err = make_pipe();
  base::Result<Pipe> failure = make_pipe();
  for (const base::Result<Pipe>* pipe : {&out, &err, &failure}) {
    if (!pipe->ok()) {
      return pipe->status();
    }
  }
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    return cannot_run(launch, errno);
  }
  if (child == 0) {
    const int error = become(launch, parent, out->write.get(), err->write.get());
    (void)!::write(failure->write.get(), &error, sizeof(error));
    ::_exit(127);
  }
  failure.value().write = {};
  int error = 0;
  if (::read(failure->read.get(), &error, sizeof(error)) == sizeof(error)) {
    ::waitpid(child, nullptr, 0);
    return cannot_run(launch, error);
  }
  RankProcess process;
  process.pid = child;
  if (!launch.own_terminal) {
    process.out = std::move(out.value().read);
    process.err = std::move(err.value().read);
    ::fcntl(process.out.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(process.err.get(), F_SETFL, O_NONBLOCK);
  }
  return process;
}

int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

// ------------------------------------------------------------------ output

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd room = {fd, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

std::string LinePrefixer::feed(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const std::size_t room = kMaxLine - partial_.size();
    const std::size_t take = std::min({newline, bytes.size(), room});
    partial_ += bytes.substr(0, take);
    bytes.remove_prefix(take);
    const bool ended = !bytes.empty() && bytes.front() == '\n';
    if (ended) {
      bytes.remove_prefix(1);
    }
    if (ended || partial_.size() == kMaxLine) {
      out += prefix_ + partial_ + '\n';
      partial_.clear();
    }
  }
  return out;
}

std::string LinePrefixer::finish() {
  if (partial_.empty()) {
    return {};
  }
  std::string out = prefix_ + partial_ + '\n';
  partial_.clear();
  return out;
}

}  // namespace spillway::lab
