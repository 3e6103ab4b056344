// SPDX-License-Identifier: Apache-2.0
#include "lab/network/isolation.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "net/system_call.h"

namespace spillway::lab {

namespace {

constexpr std::array<std::string_view, 4> kNames = {"auto", "root", "user", "none"};

// Makes the namespaces and discards them, because some systems allow making but not using them.
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

// ------------------------------------------------------------------ network and mount namespaces

base::Result<net::UniqueFd> current_network_namespace() {
  net::UniqueFd current(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!current.valid()) {
    return net::system_error("open /proc/thread-self/ns/net", errno, "/proc must be mounted");
  }
  return current;
}

base::Result<net::UniqueFd> make_network_namespace() {
  const base::Result<net::UniqueFd> home = current_network_namespace();
  if (!home.ok()) {
    return home.status();
  }
  if (::unshare(CLONE_NEWNET) != 0) {
    return net::system_error("make a network namespace", errno,
                             "see user.max_net_namespaces, or ask for fewer hosts");
  }
  base::Result<net::UniqueFd> made = current_network_namespace();
  SPILLWAY_CHECK(enter_network_namespace(home->get()).ok());
  return made;
}

base::Status enter_network_namespace(int namespace_fd) {
  if (::setns(namespace_fd, CLONE_NEWNET) != 0) {
    return net::system_error("enter a network namespace", errno);
  }
  return {};
}

void make_mounts_private() {
  constexpr unsigned long kPrivate = MS_REC | MS_PRIVATE;
  if (::mount("none", "/", nullptr, kPrivate, nullptr) == 0) {
    // The kernel refuses this where parts of /proc are hidden, as in many containers. The old /proc
    // then stays.
    (void)::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
  }
}

void mount_own_sysfs() {
  constexpr unsigned long kPrivate = MS_REC | MS_PRIVATE;
  if (::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, kPrivate, nullptr) == 0) {
    (void)::mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, nullptr);
  }
}

// ------------------------------------------------------------------ files under /proc, and tools

base::Status write_proc_file(const std::string& path, std::string_view value) {
  const net::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid() ||
      ::write(file.get(), value.data(), value.size()) != static_cast<ssize_t>(value.size())) {
    return net::system_error(fmt::format("write '{}' to {}", value, path), errno);
  }
  return {};
}

namespace {

constexpr std::size_t kMaxMessage = 2000;

// Tools read and write files in memory instead of pipes, so nothing blocks if a tool reads slowly
// or prints much.
base::Result<net::UniqueFd> memory_file(std::string_view text) {
  net::UniqueFd file(::memfd_create("lab", MFD_CLOEXEC));
  if (!file.valid() ||
      ::pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return net::system_error("make a file in memory", errno);
  }
  return file;
}

std::string text_of(int file) {
  std::string text(kMaxMessage, '\0');
  const ssize_t size = ::pread(file, text.data(), text.size(), 0);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  return text;
}

[[noreturn]] void become(const std::string& path, const std::vector<std::string>& arguments,
                         int input, int output, std::span<const int> kept_fds) {
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  for (const int fd : kept_fds) {
    ::fcntl(fd, F_SETFD, 0);
  }
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execv(path.c_str(), argv.data());
  ::_exit(127);
}

}  // namespace

base::Result<std::string> find_tool(std::string_view name, std::string_view package) {
  const char* path = std::getenv("PATH");
  std::string folders = fmt::format("{}:/usr/sbin:/sbin:/usr/bin:/bin", path ? path : "");
  for (std::string_view rest = folders; !rest.empty();) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    std::string candidate = fmt::format("{}/{}", rest.substr(0, colon), name);
    if (colon > 0 && ::access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return base::Status(
      base::StatusCode::kUnavailable,
      fmt::format("'{}' was not found: install the Debian package {}", name, package));
}

base::Status run_tool(const std::string& path, const std::vector<std::string>& arguments,
                      std::string_view input, std::span<const int> kept_fds) {
  const base::Result<net::UniqueFd> in = memory_file(input);
  const base::Result<net::UniqueFd> out = memory_file({});
  if (!in.ok() || !out.ok()) {
    return in.ok() ? out.status() : in.status();
  }
  const pid_t child = ::fork();
  if (child == 0) {
    become(path, arguments, in->get(), out->get(), kept_fds);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) {
    return net::system_error(fmt::format("run {}", path), errno);
  }
  if (status != 0) {
    return {base::StatusCode::kUnavailable,
            fmt::format("{} {} failed: {}", path, fmt::join(arguments, " "), text_of(out->get()))};
  }
  return {};
}

}  // namespace spillway::lab
