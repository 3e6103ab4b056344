// SPDX-License-Identifier: Apache-2.0
#include "lab/write_all.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace spillway::lab {

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd room = {fd, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace spillway::lab
