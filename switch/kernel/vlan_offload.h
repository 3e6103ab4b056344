// SPDX-License-Identifier: Apache-2.0
//
// Network cards that strip VLAN tags from received frames ("rxvlan"). XDP programs see such a frame
// without its tag, and the frames they forward have lost it. tc programs are told of the tag, so
// this matters only for XDP.
//
// Interfaces are those of the calling thread's network namespace. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "switch/kernel/attachment.h"

namespace spillway::kernel {

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
