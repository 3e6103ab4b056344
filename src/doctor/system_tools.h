// SPDX-License-Identifier: Apache-2.0
//
// Whether iproute2, with which labs make their links, is installed.
#pragma once

#include <string_view>

#include "doctor/finding.h"

namespace spillway::doctor {

// `path`: folders separated by colons, as in the variable PATH.
Finding check_iproute2(std::string_view path);

}  // namespace spillway::doctor
