// SPDX-License-Identifier: Apache-2.0
//
// What can go wrong in a network, as data. Link faults hold for one direction of one link and act
// on every packet it sends from `from` until `until`; host faults for one host, switch faults for
// one switch.
//
//   kLoss       each packet is lost with probability `share`
//   kBursty     Gilbert-Elliott: `share` lost on average, in bursts of `burst_packets` on average,
//               which a pause of four times their length ends
//   kGray       as kLoss, on a link that routing believes in: nobody is told; share may be 1
//   kDown       everything is lost; the switch at the link's start avoids it where it has another
//               equally short path
//   kDuplicate  each packet arrives twice with probability `share`
//   kReorder    each packet is held up to `delay` more with probability `share`
//   kCorrupt    each packet has, with probability `share`, 1 to 8 bits flipped or its corrupt flag
//               set
//   kHostDeath  the host neither sends nor receives from `from` on
//   kClockSkew  the host's clock runs `skew_ppm` fast (slow, where negative) and `delay` ahead, all
//               the time; `from` stays zero
//   kRestart    the switch forgets, at `from`, all sums it holds and all ranks it knows; packets in
//               its queues are not touched
//
// Draws come from a stream of its own per fault, keyed by the network's seed and the link.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/units.h"
#include "scenario/topology.h"
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

// A sentence about the first field that makes no sense; names are not looked up.
base::Status validate(const Fault& fault);

}  // namespace spillway::scenario
