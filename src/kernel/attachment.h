// SPDX-License-Identifier: Apache-2.0
//
// A program at a hook of an interface of the calling thread's network namespace. Attached programs
// outlive the process. Nothing that somebody else attached is replaced or taken away.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "dataplane/bpf/switch_maps.h"

namespace spillway::kernel {

struct Interface {
  std::string name;
  std::uint32_t index = 0;
};

// An error says how to list interfaces.
base::Result<Interface> find_interface(const std::string& name);

enum class Direction : std::uint8_t { kIn, kOut };

// In the driver where it can, else in the kernel's general part, which is slower; the result says
// which.
base::Result<spillway_hook> attach_xdp(int program_fd, const Interface& interface);
// Only if the program is that one.
void detach_xdp(int program_fd, std::uint32_t ifindex, spillway_hook hook);

// Makes a clsact discipline where there is none.
base::Status attach_tc(int program_fd, const Interface& interface, Direction direction);
// Only if the program is that one.
void detach_tc(int program_fd, std::uint32_t ifindex, Direction direction);
// True if the interface has a clsact discipline with programs on it. An empty one may be removed:
// nobody misses it.
bool uses_clsact(std::uint32_t ifindex);
// With it go all programs on it.
void remove_clsact(std::uint32_t ifindex);

}  // namespace spillway::kernel
