// SPDX-License-Identifier: Apache-2.0
//
// Checks of the path to a listener: all of them (check_path_to()), then each: round trips, path
// MTU, and how DSCP and ECN arrive. trim_probe.h has the check of trimming.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/probe_socket.h"
#include "tools/doctor/trim_probe.h"

namespace spillway::doctor {

// All checks of the path to a listener, in the order in which they are shown: whether it replies,
// how long packets may be, how DSCP and ECN arrive, and what switches do when queues are full. Ends
// early if nothing replies. Takes the burst's length and a fraction of a second, more if packets
// are lost.

// Accepts "10.0.0.1:7078", "[fd00::1]:7078", "host7:7078", or any of them without the port.
base::Result<net::SocketAddress> resolve_peer(std::string_view text);

Findings check_path_to(const net::SocketAddress& peer, const TrimOptions& trims,
                       std::optional<unsigned> configured_trim_bytes);

// Whether a peer replies, how long that takes, and how far its clock is from ours. The offset is
// computed as in NTP, from the fastest echo; its error is at most half of the round trip. Spillway
// does not need synchronised clocks, but people who read logs do.

struct EchoSample {
  base::Duration round_trip;  // without the listener's own time
  base::Duration offset;      // the listener's clock minus ours
};

EchoSample sample_of(const ProbeReply& reply);

struct RoundTrips {
  base::Duration smallest{};
  base::Duration median{};
  base::Duration offset{};  // from the fastest echo
  std::size_t lost = 0;
  std::size_t asked = 0;
};

// Returns nothing if no reply came.
std::optional<RoundTrips> summarise(std::vector<EchoSample> samples, std::size_t asked);
std::optional<RoundTrips> measure_round_trips(PeerLink& link);

Findings check_round_trips(const RoundTrips& trips);
// Why nothing replies. `error`: an errno; 0 if none was reported.
Finding unreachable(const net::SocketAddress& peer, int error);

// Finds the largest packet that reaches a peer by sending packets that must not be fragmented. It
// searches by halving, from the MTU that every network carries up to the interface's. The result is
// compared with the kernel's path MTU (net/address.h), because ranks use that. If long packets
// vanish and no router reports it, the path is a black hole: a transport that fills its packets
// gets nothing across.

struct PathMtu {
  std::string interface {};  // where the path begins; empty if unknown
  unsigned tried = 0;        // the largest size: the interface's MTU, at most Spillway's limit
  unsigned passed = 0;       // the largest that got through; 0: none
  unsigned kernel_mtu = 0;   // the kernel's path MTU after all trials
};

// The largest of [low, high] for which `passes` holds; 0 if none. `passes` must be monotonic.
unsigned largest_that_passes(unsigned low, unsigned high,
                             const std::function<bool(unsigned)>& passes);

base::Result<PathMtu> measure_mtu(PeerLink& link);
Finding check_path_mtu(const PathMtu& path);

// Whether the IP header's DSCP and ECN arrive unchanged in both directions, for every code point
// that Spillway uses (wire/packet.h). Switches that do not trust a port rewrite them; some
// drop unknown ones.
//
// A mark without an reply is tried again for two seconds, because a full queue may lose packets of
// one class only. It is also tried with the plain class in the other direction, to learn which
// direction fails.

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
