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
// refusal. The stranger book decides how many unidentified clients there may be, and which of them
// makes room (net/stranger_book.h). Ranks that are in are no strangers, and one that was turned
// away connects again, so a world's burst gets in by and by, even from one address. A client
// believes that it is in only after the welcome, so it is safe only for kHandshakeGrace: otherwise
// a flood of openings could keep the ranks of its own address out. Ranks that answer later keep
// their places because the newest goes first, so some always get in. At most kMaxNewcomers are
// accepted before the accepted ones are read. Blocks the calling thread and closes all sockets
// before it returns.
#pragma once

#include "base/status.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/outcome.h"
#include "comm/rendezvous/register.h"
#include "comm/rendezvous/socket.h"

namespace spillway::runtime {

inline constexpr base::Duration kStrangerPatience = base::seconds(5);
inline constexpr base::Duration kDismissedPatience = base::seconds(1);
// Some round trips between two hosts of a datacentre.
inline constexpr base::Duration kHandshakeGrace = base::milliseconds(20);
inline constexpr std::size_t kStrangerBytes = 128 * 1024;  // memory per stranger, at most
inline constexpr std::size_t kMaxNewcomers = 64;

base::Result<Meeting> host_rendezvous(Listening listening, const Attendance& attendance,
                                      const Credential& credential, const Blob& own);

}  // namespace spillway::runtime
