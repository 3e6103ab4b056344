// SPDX-License-Identifier: Apache-2.0
//
// The host's side of a rendezvous: gathers a blob of every rank and hands all of them to all.
//
// Whoever connects and is no rank of this job - a port scanner, another job, another version, a
// second process with the same rank, someone who does not know the key - hears a sentence where
// that is possible, is counted, and does not disturb the rest. Before it has proved that it knows
// the key (where there is one) it hears nothing about the job and takes nobody's place. A rank
// whose connection breaks may come again.
//
// Limits: kStrangerPatience to say who one is, and kDismissedPatience to read that one is not;
// kMaxStrangers who have not, or as many as there are ranks if that is more, and fewer where the
// process may not open so many files; then whoever comes from where most of them are has to make
// room, the silent before those who speak; kMaxNewcomers are let in before those who are in are
// listened to. Blocks the calling thread;
// returns with all closed.
#pragma once

#include "base/status.h"
#include "runtime/rendezvous/handshake.h"
#include "runtime/rendezvous/outcome.h"
#include "runtime/rendezvous/register.h"
#include "runtime/rendezvous/socket.h"

namespace spillway::runtime {

inline constexpr base::Duration kStrangerPatience = base::seconds(5);
inline constexpr base::Duration kDismissedPatience = base::seconds(1);
inline constexpr std::size_t kMaxStrangers = 512;
inline constexpr std::size_t kMaxNewcomers = 64;

base::Result<Meeting> host_rendezvous(Listening listening, const Attendance& attendance,
                                      const Credential& credential, const Blob& own);

}  // namespace spillway::runtime
