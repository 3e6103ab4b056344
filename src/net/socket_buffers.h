// SPDX-License-Identifier: Apache-2.0
//
// The sizes of a socket's kernel queues. Beyond the system's limits where this process may
// (CAP_NET_ADMIN), up to them where it may not.
#pragma once

#include <cstddef>

namespace spillway::net {

struct SocketBuffers {
  std::size_t receive = 0;  // bytes, as far as the kernel gave them
  std::size_t send = 0;
};

SocketBuffers size_socket_buffers(int fd, std::size_t bytes);

}  // namespace spillway::net
