// SPDX-License-Identifier: Apache-2.0
//
// Sends about a second of full-size data packets to a listener. They fill a queue on the path and
// show what the switch does then. Never faster than `rate`, and of the lowest priority.
//
// These are Spillway's own data packets, with header and checks, so that a switch treats them as
// such. They belong to job 65535, which no job should use. Their operation is the lower half of the
// session (the tag), so a listener can attribute even a trimmed packet.
//
// Making and reading packets is pure; send_burst() blocks for the burst's length. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "net/address.h"

namespace spillway::doctor {

// Lowest priority, so that other traffic goes first. Important enough that a Spillway switch does
// not drop the packets early: then none would be trimmed.
std::uint8_t burst_tos();

// Fills `limit` bytes of UDP payload to within 40 bytes; `limit` is at least 256.
std::vector<std::uint8_t> make_burst_packet(std::uint32_t tag, std::size_t limit);

// Returns the tag of a packet of a burst, even a trimmed one; nothing for other bytes.
std::optional<std::uint32_t> burst_tag_of(base::ByteView payload);

struct BurstOptions {
  net::SocketAddress peer;
  std::uint32_t tag = 0;
  std::size_t payload_limit = 0;  // bytes of UDP payload that fit the path
  base::BitRate rate;
  base::Duration length;
};

struct BurstSent {
  std::uint64_t packets = 0;
  std::size_t payload_bytes = 0;  // per packet
};

base::Result<BurstSent> send_burst(const BurstOptions& options);

}  // namespace spillway::doctor
