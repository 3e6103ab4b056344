// SPDX-License-Identifier: Apache-2.0
//
// Numbers among the variables that steer how a communicator is observed. One that makes no sense
// must not stop a job: the log warns of it, and the default holds.
#pragma once

#include <cstdint>

#include "runtime/launch_environment.h"

namespace spillway::runtime {

struct WarnedNumber {
  const char* name;
  std::uint32_t least = 0;
  std::uint32_t most = 0;
  std::uint32_t otherwise = 0;
};

std::uint32_t read_number(const Environment& environment, const WarnedNumber& wanted);

}  // namespace spillway::runtime
