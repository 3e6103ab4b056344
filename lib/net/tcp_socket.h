// SPDX-License-Identifier: Apache-2.0
//
// Non-blocking TCP sockets for the stream carrier. Nothing waits for more data (TCP_NODELAY); the
// kernel sizes the buffers. Little unsent data waits in them, so that urgent packets are not far
// behind. Keepalives preserve idle connections in middleboxes.
//
// Stateless; any thread.
#pragma once

#include <cerrno>
#include <optional>
#include <string>

#include "base/status.h"
#include "net/address.h"
#include "net/system_call.h"

namespace spillway::net {

struct TcpOptions {
  std::string congestion{};  // congestion control: "cubic", "bbr"...; empty: system default
};

// Also fails if the kernel lacks the congestion control.
base::Result<UniqueFd> listen_tcp(const SocketAddress& address, const TcpOptions& options);

struct TcpAttempt {
  UniqueFd fd{};
  int error = 0;  // an errno; nonzero: no socket
};
// Starts to connect from `local`'s host. connect_error() has the result once it is writable.
TcpAttempt connect_tcp(const SocketAddress& local, const SocketAddress& peer,
                       const TcpOptions& options);
int connect_error(int fd);  // an errno; 0: connected

// True if a non-blocking call failed with an errno that means: try again.
inline bool is_for_later(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

struct Accepted {
  UniqueFd fd{};  // invalid: nobody waits, or `error`
  SocketAddress from{};
  int error = 0;  // an errno; 0 if nobody waits
};
Accepted accept_tcp(int listening);

}  // namespace spillway::net
