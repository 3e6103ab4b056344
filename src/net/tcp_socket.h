// SPDX-License-Identifier: Apache-2.0
//
// Non-blocking TCP sockets as the stream carrier wants them: nothing waits for more to come
// (TCP_NODELAY), buffers are the kernel's to size, little waits in them unsent (so that what is
// urgent is not far behind), and connections that rest are kept known to whoever is on the path.
//
// No state of its own; any thread.
#pragma once

#include <cerrno>
#include <optional>
#include <string>

#include "base/status.h"
#include "net/address.h"
#include "net/system_call.h"

namespace spillway::net {

struct TcpOptions {
  std::string congestion{};  // control: "cubic", "bbr"...; empty: the system's
};

// Fails, too, where the kernel does not have the congestion control.
base::Result<UniqueFd> listen_tcp(const SocketAddress& address, const TcpOptions& options);

struct TcpAttempt {
  UniqueFd fd{};
  int error = 0;  // an errno; then there is no socket
};
// Begins to connect, from `local`'s host: once the socket is writable, connect_error() tells how
// that went.
TcpAttempt connect_tcp(const SocketAddress& local, const SocketAddress& peer,
                       const TcpOptions& options);
int connect_error(int fd);  // an errno; 0: it is connected

// Whether a socket that blocks nobody refused with an errno that means: try again.
inline bool is_for_later(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

struct Accepted {
  UniqueFd fd{};  // not valid: nobody waits, or `error`
  SocketAddress from{};
  int error = 0;  // an errno; 0 where nobody waits
};
Accepted accept_tcp(int listening);

}  // namespace spillway::net
