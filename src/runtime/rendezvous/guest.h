// SPDX-License-Identifier: Apache-2.0
//
// A guest's side of a rendezvous: finds the host, shakes hands, says who it is and hears of
// everybody. It tries every door in turn, again and again: the host may come later, another job or
// a stranger may be there, a connection may break.
//
// With a key, whoever has not proved that it knows it hears nothing but the opening, and nothing it
// says ends the attempts: the guest goes on and says at last what it heard. A list of all ranks in
// which this rank's random is not in its place is an old one, and no outcome either.
//
// Limits: kConnectPatience a connection; kWelcomePatience for the host's first word and, after the
// handshake, for its welcome; once welcome, the host says when patience has ended, and it is given
// kGrace to do so. Waits between rounds grow from kFirstPause to kLongestPause. Blocks the calling
// thread; returns with all closed.
#pragma once

#include <string>

#include "base/status.h"
#include "base/units.h"
#include "runtime/launch/rendezvous_point.h"
#include "runtime/rendezvous/handshake.h"
#include "runtime/rendezvous/outcome.h"
#include "runtime/rendezvous/register.h"

namespace spillway::runtime {

inline constexpr base::Duration kConnectPatience = base::seconds(2);
inline constexpr base::Duration kWelcomePatience = base::seconds(5);
inline constexpr base::Duration kGrace = base::seconds(2);
inline constexpr base::Duration kFirstPause = base::milliseconds(10);
inline constexpr base::Duration kLongestPause = base::milliseconds(250);

// `host` says who that is, for messages: "rank 0".
base::Result<Meeting> attend_rendezvous(const RendezvousPoint& point, const Attendance& attendance,
                                        const Credential& credential, const Blob& own,
                                        const std::string& host);

}  // namespace spillway::runtime
