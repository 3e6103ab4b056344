// SPDX-License-Identifier: Apache-2.0
//
// Finds the largest packet that reaches a peer by sending packets that must not be fragmented. It
// searches by halving, from the MTU that every network carries up to the interface's. The result is
// compared with the kernel's path MTU (net/path_mtu.h), because ranks use that. If long packets
// vanish and no router reports it, the path is a black hole: a transport that fills its packets
// gets nothing across.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "net/address.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/peer/peer_link.h"

namespace spillway::doctor {

struct PathMtu {
  std::string interface {};  // where the path begins; empty if unknown
  unsigned tried = 0;        // the largest size: the interface's MTU, at most Spillway's limit
  unsigned passed = 0;       // the largest that got through; 0: none
  unsigned believed = 0;     // the kernel's path MTU after all trials
};

// The largest of [low, high] for which `passes` holds; 0 if none. `passes` must be monotonic.
unsigned largest_that_passes(unsigned low, unsigned high,
                             const std::function<bool(unsigned)>& passes);

base::Result<PathMtu> measure_mtu(PeerLink& link);
Finding check_path_mtu(const PathMtu& path);

}  // namespace spillway::doctor
