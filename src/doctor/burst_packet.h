// SPDX-License-Identifier: Apache-2.0
//
// The packets that are sent to be cut: Spillway's own data packets, header, checks and all, so that
// a switch that recognises those recognises these. They belong to job 65535, which no job should
// use, and to the step that is the session's lower half: that way a listener knows whose they are,
// even cut. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"

namespace spillway::doctor {

// Lowest priority, so that other traffic goes first, but important enough not to be dropped early
// by a Spillway switch: it would never get as far as being cut.
std::uint8_t burst_tos();

// As long as fits `limit` bytes of UDP payload, to within 40 bytes; `limit` is at least 256.
std::vector<std::uint8_t> make_burst_packet(std::uint32_t tag, std::size_t limit);

// The tag of what may be left of such a packet; nothing for anything else.
std::optional<std::uint32_t> burst_tag_of(base::ByteView payload);

}  // namespace spillway::doctor
