// SPDX-License-Identifier: Apache-2.0
#include "doctor/socket_limits.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "net/transport_driver.h"

namespace spillway::doctor {
namespace {

Finding check_limit(const HostFiles& files, std::string_view limit, std::size_t wanted,
                    bool may_exceed) {
  const std::string check = fmt::format("net.core.{}", limit);
  const std::string remedy = fmt::format("sysctl -w {}={}", check, wanted);
  const auto bytes = files.read_number(fmt::format("proc/sys/net/core/{}", limit));
  if (!bytes) {
    return {check, may_exceed ? Severity::kOk : Severity::kNote,
            may_exceed ? "cannot be read, and CAP_NET_ADMIN exceeds it" : "cannot be read here",
            may_exceed ? "" : fmt::format("{} on the host, outside this namespace", remedy)};
  }
  if (*bytes >= wanted) {
    return {check, Severity::kOk, fmt::format("{} bytes, {} are wanted", *bytes, wanted)};
  }
  if (may_exceed) {
    return {check, Severity::kNote,
            fmt::format("{} bytes, {} are wanted: CAP_NET_ADMIN exceeds it", *bytes, wanted),
            fmt::format("{}, so that ranks without it get them too", remedy)};
  }
  return {check, Severity::kWarning,
          fmt::format("{} bytes, {} are wanted: bursts may be lost on this host", *bytes, wanted),
          remedy};
}

}  // namespace

std::size_t wanted_socket_buffer() {
  return net::DriverConfig{}.socket_buffer_bytes;
}

Findings check_socket_limits(const HostFiles& files, std::size_t wanted, bool may_exceed) {
  return {check_limit(files, "rmem_max", wanted, may_exceed),
          check_limit(files, "wmem_max", wanted, may_exceed)};
}

}  // namespace spillway::doctor
