// SPDX-License-Identifier: Apache-2.0
#include "doctor/system_tools.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace spillway::doctor {
namespace {

bool is_found(std::string_view tool, std::string_view path) {
  while (!path.empty()) {
    const std::size_t colon = std::min(path.find(':'), path.size());
    const std::string candidate = fmt::format("{}/{}", path.substr(0, colon), tool);
    if (colon > 0 && ::access(candidate.c_str(), X_OK) == 0) {
      return true;
    }
    path.remove_prefix(std::min(colon + 1, path.size()));
  }
  return false;
}

}  // namespace

Finding check_iproute2(std::string_view path) {
  for (const std::string_view tool : {"ip", "tc"}) {
    if (!is_found(tool, path)) {
      return {"iproute2", Severity::kNote,
              fmt::format("'{}' was not found: labs run on loopback only", tool),
              "apt-get install iproute2"};
    }
  }
  return {"iproute2", Severity::kOk, "ip and tc are there"};
}

}  // namespace spillway::doctor
