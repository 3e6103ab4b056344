// SPDX-License-Identifier: Apache-2.0
//
// Prints slowdown() (slowdown.h) for tests in Python and shell.
#include "slowdown.h"

#include <cstdio>

int main() {
  std::printf("%.2f\n", spillway::harness::slowdown());
}
