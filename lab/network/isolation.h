// SPDX-License-Identifier: Apache-2.0
//
// The isolation of a lab's hosts from this machine and from each other, and the means to set it up:
// namespaces, files under /proc, and system tools (ip, tc).
//
//   kRoot  network, process and mount namespaces; needs the right to make them (root)
//   kUser  the same inside a user namespace, in which the caller is root; needs no rights
//   kNone  plain processes on loopback: only Spillway's packets cross the emulated fabric
//   kAuto  the first of these that this machine allows
//
// Any thread may call these functions. Some of them fork; the child then only makes system calls,
// because locks of other threads stay locked in it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "net/system_call.h"

namespace spillway::lab {

enum class Isolation : std::uint8_t { kAuto, kRoot, kUser, kNone };

// Tells the user what kNone means.
inline constexpr std::string_view kLoopbackNotice =
    "without namespaces only Spillway's packets cross the emulated fabric; all other traffic goes "
    "over loopback. To change that, run as root or allow user namespaces (sysctl "
    "user.max_user_namespaces)";

std::string_view isolation_name(Isolation isolation);
base::Result<Isolation> parse_isolation(std::string_view name);

// Flags for clone().
int clone_flags(Isolation isolation);

// Makes the caller root inside a new user namespace. Does nothing for other isolations.
base::Status become_root_inside(Isolation isolation, unsigned user, unsigned group);

// Never returns kAuto. Fails if the wanted kind is not allowed here.
base::Result<Isolation> resolve_isolation(Isolation wanted);

// Network and mount namespaces. A network namespace is held by a file descriptor. It vanishes, with
// all its interfaces, when the last descriptor and process in it are gone. A thread is in one
// namespace at a time; in_network_namespace() moves the calling thread and moves it back.

// The calling thread's namespace.
base::Result<net::UniqueFd> current_network_namespace();

// A new, empty namespace. The calling thread stays where it is.
base::Result<net::UniqueFd> make_network_namespace();

base::Status enter_network_namespace(int namespace_fd);

// Runs `work` with the calling thread in the namespace. A thread that cannot return is useless, so
// that is treated as a bug.
template <typename Work>
base::Status in_network_namespace(int namespace_fd, Work work) {
  const base::Result<net::UniqueFd> home = current_network_namespace();
  if (!home.ok()) {
    return home.status();
  }
  if (base::Status status = enter_network_namespace(namespace_fd); !status.ok()) {
    return status;
  }
  const base::Status done = work();
  SPILLWAY_CHECK(enter_network_namespace(home->get()).ok());
  return done;
}

// Call in a new mount namespace. Mounts made here become invisible outside, and /proc shows the
// processes of this process namespace, if the system lets it be mounted.
void make_mounts_private();

// Moves the calling process to a mount namespace of its own, in which /sys/class/net shows its
// network namespace. If the system does not allow it, /sys stays as it was.
void mount_own_sysfs();

// How a lab changes the system: files under /proc, and system tools (ip, tc).
//
// A tool runs to its end in the calling thread's namespaces, with text on its standard input. It
// inherits `kept_fds` under their numbers, and nothing else. If it fails, its output becomes the
// error's message. Any thread.

// Writes in one call, as the kernel requires.
base::Status write_proc_file(const std::string& path, std::string_view value);

// Searches PATH, then the folders where Debian keeps tools for root. The error names `package`.
base::Result<std::string> find_tool(std::string_view name, std::string_view package);

base::Status run_tool(const std::string& path, const std::vector<std::string>& arguments,
                      std::string_view input, std::span<const int> kept_fds = {});

}  // namespace spillway::lab
