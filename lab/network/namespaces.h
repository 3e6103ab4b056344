// SPDX-License-Identifier: Apache-2.0
//
// Network and mount namespaces. A network namespace is held by a file descriptor. It vanishes, with
// all its interfaces, when the last descriptor and process in it are gone. A thread is in one
// namespace at a time; in_network_namespace() moves the calling thread and moves it back.
#pragma once

#include "base/status.h"
#include "net/system_call.h"

namespace spillway::lab {

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

}  // namespace spillway::lab
