// SPDX-License-Identifier: Apache-2.0
//
// Attaches programs to the hooks of an interface in the calling thread's network namespace.
// Attached programs outlive the process. Programs of other owners are never replaced or removed.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "switch/dataplane/bpf/switch_maps.h"

namespace spillway::kernel {

struct Interface {
  std::string name;
  std::uint32_t index = 0;
};

// An error tells how to list interfaces.
base::Result<Interface> find_interface(const std::string& name);

enum class Direction : std::uint8_t { kIn, kOut };

// Attaches in the driver if it supports XDP, else in the kernel's generic part, which is slower.
// The result says which.
base::Result<spillway_hook> attach_xdp(int program_fd, const Interface& interface);
// Detaches only this program.
void detach_xdp(int program_fd, std::uint32_t ifindex, spillway_hook hook);

// Adds a clsact qdisc if the interface has none.
base::Status attach_tc(int program_fd, const Interface& interface, Direction direction);
// Detaches only this program.
void detach_tc(int program_fd, std::uint32_t ifindex, Direction direction);
// True if the interface has a clsact qdisc with programs on it. An empty one may be removed,
// because nobody uses it.
bool uses_clsact(std::uint32_t ifindex);
// Also removes all programs on it.
void remove_clsact(std::uint32_t ifindex);

}  // namespace spillway::kernel
