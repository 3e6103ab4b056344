// SPDX-License-Identifier: Apache-2.0
#include "net/socket_buffers.h"

#include <sys/socket.h>

namespace spillway::net {
namespace {

std::size_t size_one(int fd, int force_option, int option, std::size_t bytes) {
  const int asked = static_cast<int>(bytes);
  if (::setsockopt(fd, SOL_SOCKET, force_option, &asked, sizeof(asked)) != 0) {
    ::setsockopt(fd, SOL_SOCKET, option, &asked, sizeof(asked));
  }
  int given = 0;
  socklen_t size = sizeof(given);
  ::getsockopt(fd, SOL_SOCKET, option, &given, &size);
  return static_cast<std::size_t>(given) / 2;  // the kernel doubles, and says the doubled figure
}

}  // namespace

SocketBuffers size_socket_buffers(int fd, std::size_t bytes) {
  return {.receive = size_one(fd, SO_RCVBUFFORCE, SO_RCVBUF, bytes),
          .send = size_one(fd, SO_SNDBUFFORCE, SO_SNDBUF, bytes)};
}

}  // namespace spillway::net
