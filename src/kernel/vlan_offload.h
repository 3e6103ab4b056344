// SPDX-License-Identifier: Apache-2.0
//
// Cards that take VLAN tags out of the frames they receive ("rxvlan"): programs in XDP see such a
// frame without its tag, and what they send on has lost it. tc programs are told of the tag, so
// this is for XDP alone.
//
// Interfaces are those of the calling thread's network namespace. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "kernel/attachment.h"

namespace spillway::kernel {

// Kinds of tags: bits of a set, as they stand in spillway_port_label.
enum TagKind : std::uint8_t {
  kCustomerTags = 1,  // 802.1Q: ethtool's rx-vlan-hw-parse, or rxvlan
  kServiceTags = 2    // 802.1ad: ethtool's rx-vlan-stag-hw-parse
};

// Those that the interface takes out at present.
base::Result<std::uint8_t> stripped_tags(const Interface& interface);

// From now on it leaves those tags in their frames. An error gives the command that does the same,
// or, where the card cannot do without, another hook.
base::Status keep_tags(const Interface& interface, std::uint8_t kinds);

// It takes them out again; what is gone or refuses is left as it is.
void strip_tags_again(std::uint32_t ifindex, std::uint8_t kinds);

// A veth: its far end may leave tags to a card that there is not. They then travel beside the
// frames, whatever is set at this end.
bool is_veth(const Interface& interface);

}  // namespace spillway::kernel
