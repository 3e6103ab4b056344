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

// Network cards that strip VLAN tags from received frames ("rxvlan"). XDP programs see such a frame
// without its tag, and the frames they forward have lost it. tc programs are told of the tag, so
// this matters only for XDP.
//
// Interfaces are those of the calling thread's network namespace. Any thread.

// Kinds of tags, as bits of spillway_port_label.stripped_tags.
enum TagKind : std::uint8_t {
  kCustomerTags = 1,  // 802.1Q: ethtool's rx-vlan-hw-parse, or rxvlan
  kServiceTags = 2    // 802.1ad: ethtool's rx-vlan-stag-hw-parse
};

// The kinds that the interface strips now.
base::Result<std::uint8_t> stripped_tags(const Interface& interface);

// Makes the interface leave those tags in frames. An error names the command that does the same, or
// another hook if the card cannot.
base::Status keep_tags(const Interface& interface, std::uint8_t kinds);

// Makes the interface strip them again. Ignores failures and interfaces that are gone.
void strip_tags_again(std::uint32_t ifindex, std::uint8_t kinds);

// True for a veth. Its far end may leave tags to a card that does not exist. They then travel
// beside the frames, whatever is set at this end.
bool is_veth(const Interface& interface);

}  // namespace spillway::kernel
