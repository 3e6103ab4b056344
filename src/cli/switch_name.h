// SPDX-License-Identifier: Apache-2.0
//
// What a switch in the kernel is called where nobody gave it a name.
#pragma once

namespace spillway::cli {

inline constexpr const char* kDefaultSwitchName = "default";

}  // namespace spillway::cli
