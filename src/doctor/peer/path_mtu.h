// SPDX-License-Identifier: Apache-2.0
//
// How long a packet to a peer may really be, found by sending: packets that must not be fragmented,
// by halving, from what every network carries up to what the interface does. Compared with what
// the kernel believes (net/path_mtu.h), because that is what a rank will send. Where long packets
// vanish and no router says so, the path is a black hole, and a transport that fills its packets
// gets nothing across.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "doctor/finding.h"
#include "doctor/peer/peer_link.h"
#include "net/address.h"

namespace spillway::doctor {

struct PathMtu {
  std::string interface {};  // that the path begins with; empty where that is not known
  unsigned tried = 0;        // the largest: the interface's MTU, as far as Spillway would fill it
  unsigned passed = 0;       // the largest that got through; 0: none
  unsigned believed = 0;     // by the kernel, after all the trying
};

// The largest of [low, high] for which `passes` holds, which must hold for all below it; 0: none.
unsigned largest_that_passes(unsigned low, unsigned high,
                             const std::function<bool(unsigned)>& passes);

base::Result<PathMtu> measure_mtu(PeerLink& link);
Finding check_path_mtu(const PathMtu& path);

}  // namespace spillway::doctor
