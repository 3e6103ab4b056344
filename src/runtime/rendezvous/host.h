// SPDX-License-Identifier: Apache-2.0
//
// The host's side of a rendezvous: gathers a blob of every rank and hands all of them to all.
//
// Whoever connects and is no rank of this job - a port scanner, another job, another version, a
// second process with the same rank - hears a sentence where that is possible and does not disturb
// the rest. A rank whose connection breaks may come again.
//
// Limits: kStrangerPatience to say who one is; kMaxStrangers who have not, the oldest goes first.
// Blocks the calling thread; returns with all closed.
#pragma once

#include <vector>

#include "base/status.h"
#include "runtime/rendezvous/register.h"
#include "runtime/rendezvous/socket.h"

namespace spillway::runtime {

inline constexpr base::Duration kStrangerPatience = base::seconds(5);
inline constexpr std::size_t kMaxStrangers = 512;

base::Result<std::vector<Blob>> host_rendezvous(Listening listening, const Attendance& attendance,
                                                const Blob& own);

}  // namespace spillway::runtime
