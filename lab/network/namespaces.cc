// SPDX-License-Identifier: Apache-2.0
#include "lab/network/namespaces.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>

#include "net/system_call.h"

namespace spillway::lab {

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
    // Refused where parts of /proc are hidden, as in many containers. The old /proc then stays.
    (void)::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
  }
}

void mount_own_sysfs() {
  constexpr unsigned long kPrivate = MS_REC | MS_PRIVATE;
  if (::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, kPrivate, nullptr) == 0) {
    (void)::mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, nullptr);
  }
}

}  // namespace spillway::lab
