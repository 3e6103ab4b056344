// SPDX-License-Identifier: Apache-2.0
//
// Text to a descriptor, all of it, however long that takes. A reader that went away is no reason to
// stop the work: what it does not take is lost.
#pragma once

#include <string_view>

namespace spillway::lab {

void write_all(int fd, std::string_view text);

}  // namespace spillway::lab
