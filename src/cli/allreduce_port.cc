// SPDX-License-Identifier: Apache-2.0
#include "cli/allreduce_port.h"

#include "cli/command_error.h"
#include "net/unique_fd.h"

namespace spillway::cli {

std::uint16_t free_tcp_port(const net::SocketAddress& address) {
  const net::SocketAddress any = address.with_port(0);
  const net::UniqueFd socket(::socket(any.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::bind(socket.get(), any.data(), any.size()) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    throw CommandError("there is no free TCP port at " + any.to_string());
  }
  return net::SocketAddress::from(bound).port();
}

}  // namespace spillway::cli
