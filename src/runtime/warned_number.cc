// SPDX-License-Identifier: Apache-2.0
#include "runtime/warned_number.h"

#include "runtime/debug_log.h"

namespace spillway::runtime {

std::uint32_t read_number(const Environment& environment, const WarnedNumber& wanted) {
  if (!environment.has(wanted.name)) {
    return wanted.otherwise;
  }
  const auto number = environment.number(wanted.name, wanted.most);
  if (number.ok() && *number >= wanted.least) {
    return *number;
  }
  log_warn("{}={} is not a whole number from {} to {}: {} is used", wanted.name,
           environment.get_or(wanted.name, ""), wanted.least, wanted.most, wanted.otherwise);
  return wanted.otherwise;
}

}  // namespace spillway::runtime
