// SPDX-License-Identifier: Apache-2.0
//
// Whether the IP header's DSCP and ECN arrive as they were sent, both ways, for every code point
// that Spillway uses (wire/traffic_class.h). Switches that do not trust a port rewrite them, some
// drop what they do not know.
//
// A mark without an answer is asked for again for two seconds, because a full queue loses packets
// of one class too; and with the plain class in the other direction, so that the direction is
// known.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "doctor/finding.h"
#include "doctor/peer/peer_link.h"

namespace spillway::doctor {

// One value of the IP header's TOS byte, and as what it arrived; nothing: it did not.
struct MarkTrial {
  std::uint8_t tos = 0;
  std::optional<std::uint8_t> there{};
  std::optional<std::uint8_t> back{};
};

// Of the eight priorities, trimmed and control packets; Not-ECT.
std::vector<MarkTrial> dscp_trials();
// ECT(0), ECT(1) and CE, with the DSCP of control packets.
std::vector<MarkTrial> ecn_trials();

void try_marks(PeerLink& link, std::span<MarkTrial> trials);

// One finding per direction for what is rewritten, and one more for what never arrives.
Findings check_dscp(std::span<const MarkTrial> trials);
// An ECT that arrives as CE met a full queue: that is what it is for.
Findings check_ecn(std::span<const MarkTrial> trials);

}  // namespace spillway::doctor
