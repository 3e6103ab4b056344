// SPDX-License-Identifier: Apache-2.0
#include "lab/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "lab/network/namespaces.h"
#include "net/system_call.h"

namespace spillway::lab {
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

}  // namespace spillway::lab
