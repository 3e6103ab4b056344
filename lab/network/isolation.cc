// SPDX-License-Identifier: Apache-2.0
#include "lab/network/isolation.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "lab/network/tools.h"

namespace spillway::lab {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"auto", "root", "user", "none"};

// Makes the namespaces and discards them: some systems allow making but not using them.
bool is_allowed(Isolation isolation) {
  const unsigned user = ::geteuid();
  const unsigned group = ::getegid();
  const auto child =
      static_cast<pid_t>(::syscall(SYS_clone, clone_flags(isolation) | SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    const bool usable =
        become_root_inside(isolation, user, group).ok() && ::unshare(CLONE_NEWNET) == 0;
    ::_exit(usable ? 0 : 1);
  }
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

base::Status not_allowed(Isolation isolation) {
  return {base::StatusCode::kUnavailable,
          isolation == Isolation::kRoot
              ? "this process may not make network namespaces: run as root, or give "
                "--isolation user or none"
              : "this machine does not allow user namespaces (sysctl user.max_user_namespaces; on "
                "Ubuntu kernel.apparmor_restrict_unprivileged_userns): run as root, allow them, or "
                "give --isolation none"};
}

}  // namespace

std::string_view isolation_name(Isolation isolation) {
  return kNames[static_cast<std::size_t>(isolation)];
}

base::Result<Isolation> parse_isolation(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) {
      return static_cast<Isolation>(i);
    }
  }
  return base::invalid_argument(
      fmt::format("isolation '{}' is not one of {}", name, fmt::join(kNames, ", ")));
}

int clone_flags(Isolation isolation) {
  constexpr int kNamespaces = CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS;
  switch (isolation) {
    case Isolation::kRoot:
      return kNamespaces;
    case Isolation::kUser:
      return kNamespaces | CLONE_NEWUSER;
    default:
      return 0;
  }
}

base::Status become_root_inside(Isolation isolation, unsigned user, unsigned group) {
  if (isolation != Isolation::kUser) {
    return {};
  }
  // Without this the kernel refuses the group map of an unprivileged caller.
  if (base::Status status = write_proc_file("/proc/self/setgroups", "deny"); !status.ok()) {
    return status;
  }
  if (base::Status status = write_proc_file("/proc/self/uid_map", fmt::format("0 {} 1", user));
      !status.ok()) {
    return status;
  }
  return write_proc_file("/proc/self/gid_map", fmt::format("0 {} 1", group));
}

base::Result<Isolation> resolve_isolation(Isolation wanted) {
  if (wanted == Isolation::kNone) {
    return wanted;
  }
  if (wanted != Isolation::kAuto) {
    return is_allowed(wanted) ? base::Result<Isolation>(wanted) : not_allowed(wanted);
  }
  for (const Isolation isolation : {Isolation::kRoot, Isolation::kUser}) {
    if (is_allowed(isolation)) {
      return isolation;
    }
  }
  return Isolation::kNone;
}

}  // namespace spillway::lab
