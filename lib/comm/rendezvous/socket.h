// SPDX-License-Identifier: Apache-2.0
//
// Sockets of a rendezvous: connecting, listening, and nonblocking reads and writes.
//
// A name lookup takes as long as the system's resolver; nothing else here exceeds its time limit. A
// Unix socket admits only processes of the same user: anyone on the machine can take such a name.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "launch/launch.h"
#include "net/address.h"
#include "net/system_call.h"

namespace spillway::comm {

// One address to connect to.
struct StreamAddress {
  sockaddr_storage address{};
  socklen_t size = 0;
  std::string text{};  // for messages
};

// All addresses of a point, in order; at least one.
base::Result<std::vector<StreamAddress>> stream_addresses_of(const launch::RendezvousPoint& point);

struct Listening {
  net::UniqueFd socket{};
  std::string text{};  // the address, for messages
};

// Listens at the first place that can be bound. If all places name the host by one literal address,
// it listens at that address only. Otherwise it listens at all of this host's: a host's own name
// often resolves to loopback there.
base::Result<Listening> listen_at(const launch::RendezvousPoint& point);
// Listens at exactly this address; port 0 means any free port.
base::Result<net::UniqueFd> listen_exactly(const net::SocketAddress& address);

// The listening socket of an address.
StreamAddress stream_address_of(const net::SocketAddress& address, std::string text);

// Starts connecting. Once the socket is writable, finish_connecting() returns the outcome.
base::Result<net::UniqueFd> begin_to_connect(const StreamAddress& where);
base::Status finish_connecting(const net::UniqueFd& socket, const StreamAddress& where);
// Both: a connection, or an error after at most `patience`.
base::Result<net::UniqueFd> connect_to(const StreamAddress& where, base::Duration patience);
struct AcceptedClient {
  net::UniqueFd socket{};        // invalid if no client waits
  std::string source{};          // the client's address without a port; empty on a Unix socket
  bool is_out_of_files = false;  // a client waits, but this process is out of file descriptors
};
// Accepts the next client.
AcceptedClient accept_from(const net::UniqueFd& listener);

// True if `socket` becomes ready for `events` (of poll) within `patience`.
bool wait_for(const net::UniqueFd& socket, short events, base::Duration patience);

enum class StreamState { kOpen, kClosed };

// Appends what can be read, at most 64 KiB.
StreamState receive_some(const net::UniqueFd& socket, std::vector<std::uint8_t>& to);
// Sends as much as fits from `position`, and advances it.
StreamState send_some(const net::UniqueFd& socket, base::ByteView bytes, std::size_t& position);

}  // namespace spillway::comm
