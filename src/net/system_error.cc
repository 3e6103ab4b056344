// SPDX-License-Identifier: Apache-2.0
#include "net/system_error.h"

#include <fmt/format.h>

#include <system_error>

namespace spillway::net {

base::Status system_error(std::string_view attempt, int error, std::string_view hint) {
  const std::string reason = std::generic_category().message(error);
  return {base::StatusCode::kUnavailable,
          hint.empty() ? fmt::format("cannot {}: {}", attempt, reason)
                       : fmt::format("cannot {}: {}; {}", attempt, reason, hint)};
}

}  // namespace spillway::net
