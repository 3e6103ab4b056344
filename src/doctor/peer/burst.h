// SPDX-License-Identifier: Apache-2.0
//
// A second or so of full-size data packets to a listener, to fill a queue on the path and see what
// the switch does then. Never faster than `rate`, and of the lowest priority.
//
// They are Spillway's own data packets, header, checks and all, so that a switch that recognises
// those recognises these. They belong to job 65535, which no job should use, and to the operation
// that is the session's lower half (the tag): that is how a listener knows whose they are, even
// cut.
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

// Lowest priority, so that other traffic goes first, but important enough not to be dropped early
// by a Spillway switch: it would never get as far as being cut.
std::uint8_t burst_tos();

// As long as fits `limit` bytes of UDP payload, to within 40 bytes; `limit` is at least 256.
std::vector<std::uint8_t> make_burst_packet(std::uint32_t tag, std::size_t limit);

// The tag of what may be left of such a packet; nothing for anything else.
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
  std::size_t payload_bytes = 0;  // of each
};

base::Result<BurstSent> send_burst(const BurstOptions& options);

}  // namespace spillway::doctor
