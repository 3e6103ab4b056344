// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/allreduce/helper_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "net/system_call.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {

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

}  // namespace spillway::bench
