// SPDX-License-Identifier: Apache-2.0
//
// What the operating system refused, as a Status that names the attempt and the reason.
#pragma once

#include <string_view>

#include "base/status.h"

namespace spillway::net {

// "cannot bind 127.0.0.1:7000: Address already in use". `error` is an errno; `hint`, if any, says
// what to do about it.
base::Status system_error(std::string_view attempt, int error, std::string_view hint = {});

}  // namespace spillway::net
