// SPDX-License-Identifier: Apache-2.0
//
// Faults of a network, as data. A link fault affects one direction of one link and acts on every
// packet sent from `from` until `until`. Host faults affect one host, switch faults one switch.
//
//   kLoss       each packet is lost with probability `share`
//   kBursty     Gilbert-Elliott: `share` lost on average, in bursts of `burst_packets` on average;
//               a pause of four times their length ends a burst
//   kGray       as kLoss, on a link that routing keeps using: nobody is told; share may be 1
//   kDown       everything is lost; the switch at the link's start avoids it where it has another
//               equally short path
//   kDuplicate  each packet arrives twice with probability `share`
//   kReorder    each packet is held up to `delay` more with probability `share`
//   kCorrupt    each packet has, with probability `share`, 1 to 8 bits flipped or its corrupt flag
//               set
//   kHostDeath  the host neither sends nor receives after `from`
//   kClockSkew  the host's clock runs `skew_ppm` fast (slow if negative) and `delay` ahead, all the
//               time; `from` stays zero
//   kRestart    the switch forgets, at `from`, all sums it holds and all ranks it knows; packets in
//               its queues are not touched
//
// Each fault draws from its own random stream, keyed by the network's seed and the link.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/units.h"
#include "sim/scenario/topology.h"
#include "transport/message.h"

namespace spillway::scenario {

enum class FaultKind : std::uint8_t {
  kLoss,
  kBursty,
  kGray,
  kDown,
  kDuplicate,
  kReorder,
  kCorrupt,
  kHostDeath,
  kClockSkew,
  kRestart
};

inline constexpr HostId kNoHost = UINT32_MAX;

struct Fault {
  FaultKind kind = FaultKind::kLoss;
  std::string link{};         // as topology.h names it: "leaf0->spine1"; for link faults
  HostId host = kNoHost;      // for host faults
  std::string switch_name{};  // for switch faults
  base::Instant from{};
  base::Instant until = transport::kNever;
  double share = 1.0;
  double burst_packets = 10.0;
  base::Duration delay{};
  double skew_ppm = 0.0;
};

bool is_host_fault(FaultKind kind);
bool is_switch_fault(FaultKind kind);

// Names the first invalid field; does not look names up.
base::Status validate(const Fault& fault);

}  // namespace spillway::scenario
