// SPDX-License-Identifier: Apache-2.0
#include "cli/huge_pages.h"

#include <unistd.h>

#include <cstdlib>

namespace spillway::cli {

void restart_with_huge_pages(char** argv) {
  // Whoever set tunables knows better; and after the restart they are set, so it happens once.
  if (getenv("GLIBC_TUNABLES") == nullptr &&
      setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 1) == 0) {
    execv("/proc/self/exe", argv);
  }
}

}  // namespace spillway::cli
