/* SPDX-License-Identifier: Apache-2.0
 *
 * Random words for ports in the kernel: a state of 64 bits, never zero, per processor. xorshift64*:
 * good enough to toss coins for frames, three shifts and a product; not for secrets. Replays from
 * the same state.
 */
#ifndef SPILLWAY_DATAPLANE_PORT_RANDOM_H
#define SPILLWAY_DATAPLANE_PORT_RANDOM_H

#include <linux/types.h>

static inline __u32 spillway_next_random(__u64* state) {
  __u64 x = *state;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  *state = x;
  return (__u32)((x * 0x2545F4914F6CDD1DULL) >> 32);
}

#endif /* SPILLWAY_DATAPLANE_PORT_RANDOM_H */
