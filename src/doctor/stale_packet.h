// SPDX-License-Identifier: Apache-2.0
//
// Packets that a switch cut without correcting their lengths: the IP or UDP header promises more
// bytes than there are, so the kernel throws them away and no socket ever sees them.
//
// Looks at the bytes of an IP packet as they came off the wire and believes none of them. Fragments
// and IPv6 extension headers are not looked into. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace spillway::doctor {

// The UDP payload, as far as it is there, of a packet to `port` whose lengths are stale; nothing
// for all other packets. `packet` begins with the IP header.
std::optional<base::ByteView> stale_payload(base::ByteView packet, std::uint16_t port);

}  // namespace spillway::doctor
