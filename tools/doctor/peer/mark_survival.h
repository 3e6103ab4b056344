// SPDX-License-Identifier: Apache-2.0
//
// Whether the IP header's DSCP and ECN arrive unchanged in both directions, for every code point
// that Spillway uses (wire/traffic_class.h). Switches that do not trust a port rewrite them; some
// drop unknown ones.
//
// A mark without an answer is tried again for two seconds, because a full queue may lose packets of
// one class only. It is also tried with the plain class in the other direction, to learn which
// direction fails.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tools/doctor/finding.h"
#include "tools/doctor/peer/peer_link.h"

namespace spillway::doctor {

// One value of the IP header's TOS byte, and the value as it arrived; unset if it did not.
struct MarkTrial {
  std::uint8_t tos = 0;
  std::optional<std::uint8_t> there{};
  std::optional<std::uint8_t> back{};
};

// Marks of the eight priorities, trimmed and control packets; Not-ECT.
std::vector<MarkTrial> dscp_trials();
// ECT(0), ECT(1) and CE, with the DSCP of control packets.
std::vector<MarkTrial> ecn_trials();

void try_marks(PeerLink& link, std::span<MarkTrial> trials);

// One finding per direction for rewritten marks, and one more for marks that never arrive.
Findings check_dscp(std::span<const MarkTrial> trials);
// An ECT mark that arrives as CE is fine: it met a full queue.
Findings check_ecn(std::span<const MarkTrial> trials);

}  // namespace spillway::doctor
