// SPDX-License-Identifier: Apache-2.0
//
// What a communicator has to say about operations whose numbers can be added on the way, before the
// engine looks at them: what SPILLWAY_ALGORITHM makes of an operation that does not say, and
// whether this run's packets can carry sums at all.
//
// Pure functions; every rank, told the same, comes to the same.
#pragma once

#include "base/status.h"
#include "collective/operation.h"
#include "packetize/packet_plan.h"

namespace spillway::runtime {

// The operation as it is carried out where `algorithm` is the environment's. Switches add what is
// tolerant and can be coded for them; coded numbers go round a ring where that is said; all else
// goes as if nothing had been said.
collective::Operation with_algorithm(const collective::Operation& asked,
                                     collective::Algorithm algorithm,
                                     const collective::Group& group);

// Who adds must be able to read, and sums have packets of one size.
base::Status check_sums(const collective::Operation& operation, bool encrypts,
                        const packetize::PacketLimits& limits);

}  // namespace spillway::runtime
