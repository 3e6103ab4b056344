// SPDX-License-Identifier: Apache-2.0
//
// A value into a file under /proc, in one write, as the kernel wants it.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace spillway::lab {

base::Status write_setting(const std::string& path, std::string_view value);

}  // namespace spillway::lab
