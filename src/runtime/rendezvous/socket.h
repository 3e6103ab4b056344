// SPDX-License-Identifier: Apache-2.0
//
// Sockets of a rendezvous: where to knock, where to listen, and bytes in and out without blocking.
//
// Looking up a name asks the system's resolver and may take as long as that takes; nothing else
// here waits longer than it is told. On a Unix socket only processes of the same user are let in:
// anyone on the machine can take such a name.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "net/system_call.h"
#include "runtime/launch/rendezvous_point.h"

namespace spillway::runtime {

// One address to knock at.
struct Door {
  sockaddr_storage address{};
  socklen_t size = 0;
  std::string text{};  // as people know it
};

// All addresses of a point, in order; at least one.
base::Result<std::vector<Door>> doors_of(const RendezvousPoint& point);

struct Listening {
  net::UniqueFd socket{};
  std::string text{};  // where the others are expected
};

// At the first place that can be had. Where the places name a host by one address, at that address
// alone; where by a name or by several, at all of this host's: a host's own name often leads to
// loopback there.
base::Result<Listening> listen_at(const RendezvousPoint& point);
// At exactly this address, or any free port where its port is 0.
base::Result<net::UniqueFd> listen_exactly(const net::SocketAddress& address);

// The door of an address.
Door door_of(const net::SocketAddress& address, std::string text);

// Begins to connect; when the socket can be written to, finish_connecting() says how that ended.
base::Result<net::UniqueFd> begin_to_connect(const Door& door);
base::Status finish_connecting(const net::UniqueFd& socket, const Door& door);
// Both: a connection, or nothing within `patience`.
base::Result<net::UniqueFd> connect_to(const Door& door, base::Duration patience);
struct Newcomer {
  net::UniqueFd socket{};   // invalid: nobody knocks
  std::string source{};     // its address without a port; empty on a Unix socket
  bool is_crowded = false;  // somebody does, but this process has no file left to let it in
};
// The next who knocks.
Newcomer accept_from(const net::UniqueFd& listener);

// Whether `socket` is ready for `events` (of poll) within `patience`.
bool wait_for(const net::UniqueFd& socket, short events, base::Duration patience);

enum class StreamState { kOpen, kClosed };

// Reads what is there, at most about 64 KiB, and appends it.
StreamState receive_some(const net::UniqueFd& socket, std::vector<std::uint8_t>& to);
// Sends what fits, from `position` on, which is advanced.
StreamState send_some(const net::UniqueFd& socket, base::ByteView bytes, std::size_t& position);

}  // namespace spillway::runtime
