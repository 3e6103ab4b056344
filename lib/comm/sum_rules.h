// SPDX-License-Identifier: Apache-2.0
//
// Rules for operations whose sums switches can form, applied before the engine sees them: how
// SPILLWAY_ALGORITHM changes an operation that names no algorithm, and whether this run's packets
// can carry sums.
//
// Pure functions: the same input gives the same result at every rank.
#pragma once

#include "base/status.h"
#include "collective/operation.h"
#include "packetize/packet_plan.h"

namespace spillway::runtime {

// The operation that runs if the environment says `algorithm`. kSwitch applies to tolerant
// operations whose values switches can add. Coded operations obey kRing alone, exact ones all but
// kSwitch. In other cases the variable is ignored.
collective::Operation with_algorithm(const collective::Operation& asked,
                                     collective::Algorithm algorithm,
                                     const collective::Group& group);

// Fails for codes that switches add if packets are encrypted, because switches must read them. Also
// fails if the MTU is too small for sum packets, whose size is fixed.
base::Status check_sums(const collective::Operation& operation, bool encrypts,
                        const packetize::PacketLimits& limits);

}  // namespace spillway::runtime
