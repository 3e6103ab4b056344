// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace spillway::base {

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "spillway: bug at %s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace spillway::base
