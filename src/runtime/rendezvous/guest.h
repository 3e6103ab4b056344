// SPDX-License-Identifier: Apache-2.0
//
// A guest's side of a rendezvous: finds the host, says who it is and hears of everybody. It tries
// every door in turn, again and again: the host may come later, another job may still be there, a
// connection may break.
//
// Limits: kConnectPatience a connection; kWelcomePatience for the host's first word; once welcome,
// the host says when patience has ended, and it is given kGrace to do so. Waits between rounds grow
// from kFirstPause to kLongestPause. Blocks the calling thread; returns with all closed.
#pragma once

#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "runtime/launch/rendezvous_point.h"
#include "runtime/rendezvous/register.h"

namespace spillway::runtime {

inline constexpr base::Duration kConnectPatience = base::seconds(2);
inline constexpr base::Duration kWelcomePatience = base::seconds(5);
inline constexpr base::Duration kGrace = base::seconds(2);
inline constexpr base::Duration kFirstPause = base::milliseconds(10);
inline constexpr base::Duration kLongestPause = base::milliseconds(250);

// `host` says who that is, for messages: "rank 0".
base::Result<std::vector<Blob>> attend_rendezvous(const RendezvousPoint& point,
                                                  const Attendance& attendance, const Blob& own,
                                                  const std::string& host);

}  // namespace spillway::runtime
