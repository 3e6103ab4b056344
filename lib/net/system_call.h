// SPDX-License-Identifier: Apache-2.0
//
// Shared by all code that makes system calls: an owning descriptor, durations as the kernel takes
// them, errors as a Status that names attempt and reason, random bytes, and the kernel's release.
// Stateless; any thread.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <compare>
#include <ctime>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"

namespace spillway::net {

// A file descriptor, closed with its owner. Movable, not copyable.
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

// Negative durations become zero.
inline timespec timespec_of(base::Duration duration) {
  const std::int64_t count = std::max<std::int64_t>(duration.count(), 0);
  return {.tv_sec = static_cast<time_t>(count / 1'000'000'000),
          .tv_nsec = static_cast<long>(count % 1'000'000'000)};
}

inline base::Duration duration_of(const timespec& time) {
  return base::seconds(time.tv_sec) + base::nanoseconds(time.tv_nsec);
}

// "cannot bind 127.0.0.1:7000: Address already in use". `error` is an errno; `hint`, if any, says
// what to do about it.
base::Status system_error(std::string_view attempt, int error, std::string_view hint = {});

// The error for a thread that could not be made: what it `does`, and what to do about it.
base::Status cannot_make_thread(std::string_view does, const std::system_error& error);

// Sets the thread's name in top and perf; only 15 characters count.
void name_thread(const char* name);

// Fills `bytes` from the kernel's random number generator.
base::Status fill_random(base::MutableByteView bytes);

struct KernelRelease {
  unsigned major = 0;
  unsigned minor = 0;

  friend auto operator<=>(const KernelRelease&, const KernelRelease&) = default;
};

// Parses "6.1.0-18-amd64", "5.15" or "6.6-rc1+"; empty if the text does not begin with two numbers.
std::optional<KernelRelease> parse_kernel_release(std::string_view text);

// The running kernel's release.
std::optional<KernelRelease> kernel_release();

}  // namespace spillway::net
