// SPDX-License-Identifier: Apache-2.0
#include "net/system_call.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/utsname.h>

#include <cerrno>
#include <charconv>
#include <system_error>

namespace spillway::net {

base::Status system_error(std::string_view attempt, int error, std::string_view hint) {
  const std::string reason = std::generic_category().message(error);
  return {base::StatusCode::kUnavailable,
          hint.empty() ? fmt::format("cannot {}: {}", attempt, reason)
                       : fmt::format("cannot {}: {}; {}", attempt, reason, hint)};
}

base::Status cannot_make_thread(std::string_view does, const std::system_error& error) {
  return system_error(fmt::format("make the thread that {}", does), error.code().value(),
                      "raise the limit on processes and threads (ulimit -u, or the container's "
                      "pids.max), or end some");
}

void name_thread(const char* name) {
  ::prctl(PR_SET_NAME, name);
}

base::Status fill_random(base::MutableByteView bytes) {
  // Up to 256 bytes the kernel returns all at once, or waits until it has randomness.
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno != EINTR) {
      return system_error("get random bytes from the kernel", errno);
    }
    bytes = bytes.subspan(got < 0 ? 0 : static_cast<std::size_t>(got));
  }
  return {};
}

std::optional<KernelRelease> parse_kernel_release(std::string_view text) {
  const char* end = text.data() + text.size();
  KernelRelease release;
  const auto [dot, first_error] = std::from_chars(text.data(), end, release.major);
  if (first_error != std::errc() || dot == end || *dot != '.') {
    return std::nullopt;
  }
  if (std::from_chars(dot + 1, end, release.minor).ec != std::errc()) {
    return std::nullopt;
  }
  return release;
}

std::optional<KernelRelease> kernel_release() {
  utsname names = {};
  return ::uname(&names) == 0 ? parse_kernel_release(names.release) : std::nullopt;
}

}  // namespace spillway::net
