// SPDX-License-Identifier: Apache-2.0
//
// A file descriptor with one owner: closed when the owner goes, moved but never copied.
#pragma once

#include <unistd.h>

#include <utility>

namespace spillway::net {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  // Gives up ownership.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace spillway::net
