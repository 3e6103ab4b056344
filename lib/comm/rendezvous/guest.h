// SPDX-License-Identifier: Apache-2.0
//
// A guest's side of a rendezvous: it finds the host, shakes hands, says hello and receives the
// blobs of all ranks. It retries every address in turn, because the host may start later, another
// job or a stranger may answer, or a connection may break.
//
// With a key, a peer that has not proved the key learns nothing but the opening, and nothing it
// says ends the attempts. The guest retries, and reports what it heard at the end. A gather in
// which this rank's random is not in its place is a replay, and is rejected.
//
// Limits: kConnectPatience per connection; kWelcomePatience for the host's first frame and, after
// the handshake, for its welcome. After the welcome, the host says when patience has ended, and has
// kGrace to do so. Pauses between rounds grow from kFirstPause to kLongestPause. Blocks the calling
// thread and closes all sockets before it returns.
#pragma once

#include <string>

#include "base/status.h"
#include "base/units.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/outcome.h"
#include "comm/rendezvous/register.h"
#include "launch/rendezvous_point.h"

namespace spillway::runtime {

inline constexpr base::Duration kConnectPatience = base::seconds(2);
inline constexpr base::Duration kWelcomePatience = base::seconds(5);
inline constexpr base::Duration kGrace = base::seconds(2);
inline constexpr base::Duration kFirstPause = base::milliseconds(10);
inline constexpr base::Duration kLongestPause = base::milliseconds(250);

// `host` names the host in messages: "rank 0".
base::Result<Meeting> attend_rendezvous(const RendezvousPoint& point, const Attendance& attendance,
                                        const Credential& credential, const Blob& own,
                                        const std::string& host);

}  // namespace spillway::runtime
