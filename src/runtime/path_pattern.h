// SPDX-License-Identifier: Apache-2.0
//
// Paths in variables, with what differs from process to process left open:
//   %h host name, up to its first dot    %p process id    %r rank    %c communicator's name    %% %
// Anything else behind a % stays as it is.
#pragma once

#include <string>
#include <string_view>

#include "runtime/identity.h"

namespace spillway::runtime {

// Of this machine, up to its first dot.
std::string host_name();

// With %r and %c, where `identity` is known; without one they stay. A '/' in a name becomes '_'.
std::string expand_path(std::string_view pattern, const Identity* identity);

}  // namespace spillway::runtime
