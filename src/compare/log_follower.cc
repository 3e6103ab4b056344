// SPDX-License-Identifier: Apache-2.0
#include "compare/log_follower.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>

namespace spillway::compare {

bool LogFollower::look() {
  if (!file_.valid()) {
    // O_NONBLOCK: what the command put there may be a pipe that nobody writes to.
    file_ = net::UniqueFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  }
  std::array<char, 65536> buffer;
  for (std::size_t taken = 0; taken < kMostBytesPerLook; taken += buffer.size()) {
    const ssize_t size = file_.valid() ? ::read(file_.get(), buffer.data(), buffer.size()) : 0;
    if (size <= 0) {
      return taken > 0;
    }
    reader_.feed({buffer.data(), static_cast<std::size_t>(size)});
  }
  return true;
}

void LogFollower::finish() {
  while (look()) {
  }
  reader_.finish();
}

}  // namespace spillway::compare
