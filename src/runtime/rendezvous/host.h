// SPDX-License-Identifier: Apache-2.0
//
// The host's side of a rendezvous: collects a blob from every rank and sends all of them to all.
//
// Strangers are port scanners, other jobs, other versions, second processes with the same rank, and
// clients that do not know the key. Each gets a message if possible, is counted, and does not
// disturb the rest. A client learns nothing about the job and takes no rank's place before it has
// proved the key (if there is one). A rank whose connection breaks may reconnect.
//
// Limits: a client has kStrangerPatience to identify itself, and kDismissedPatience to read a
// refusal. Unidentified clients are limited to kMaxStrangers, or to the number of ranks if that is
// larger; to fewer if the process may not open so many files. Beyond that, the source address with
// most of them loses one, silent ones first. At most kMaxNewcomers are accepted before the accepted
// ones are read. Blocks the calling thread and closes all sockets before it returns.
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
