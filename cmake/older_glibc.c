/* SPDX-License-Identifier: Apache-2.0
 *
 * The wheel's tool holds libstdc++, which calls arc4random(). glibc has it since 2.36. With this
 * one the wheel needs no more than glibc 2.34, which RHEL 9 and Amazon Linux 2023 have. */
#include <stdint.h>
#include <sys/random.h>

uint32_t arc4random(void);

uint32_t arc4random(void) {
  uint32_t drawn = 0;
  while (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) {
  }
  return drawn;
}
