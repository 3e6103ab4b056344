/* SPDX-License-Identifier: Apache-2.0
 *
 * An output port that only models its queues. The frames themselves go on at once to a device that
 * has its own queues but does not show how full they are. For eBPF, and for C and C++ to compare
 * with.
 *
 * Bytes enter as the port admits them and leave as a fluid at the link's rate. The control queue
 * gets its share while data waits; data goes by priority. The real link serves the same bytes at
 * the same rate, so the model follows the real queues. The time of preambles, checksums and gaps is
 * served first.
 *
 * Time is any clock in nanoseconds; a time before the last one changes nothing. One caller at a
 * time. eBPF holds a lock around spillway_pass_port(), so all its calls must be inlined.
 */
#ifndef SPILLWAY_DATAPLANE_VIRTUAL_PORT_H
#define SPILLWAY_DATAPLANE_VIRTUAL_PORT_H

#include "switch/dataplane/admission.h"
#include "switch/dataplane/scheduling.h"

#define SPILLWAY_RATE_SHIFT 24
#define SPILLWAY_LONGEST_PAUSE (1ULL << 28) /* ns; a longer pause counts as this long */

struct spillway_link {
  __u32 rate;         /* bytes per nanosecond, times 2^SPILLWAY_RATE_SHIFT */
  __u32 lost_of_2_32; /* gray loss: share of frames that vanish after the queue, times 2^32 */
};

struct spillway_virtual_port {
  struct spillway_port_state state; /* its packet counts and control balance are unused */
  __u64 drained_ns;                 /* time at which `state` was up to date */
  __u32 fraction;                   /* of a byte that the link has served, times 2^24 */
  __u32 overhead;                   /* bytes between frames, not served yet */
};

static inline __u32 spillway_min(__u32 a, __u32 b) {
  return a < b ? a : b;
}

/* Takes up to `budget` bytes from a queue and returns how many. */
static inline __u32 spillway_serve(struct spillway_port_state* state, __u8 queue, __u32 budget) {
  const __u32 served = spillway_min(state->bytes[queue], budget);
  state->bytes[queue] -= served;
  if (state->bytes[queue] == 0) {
    state->occupied &= ~(1U << queue);
  }
  return served;
}

static inline __u32 spillway_serve_data(struct spillway_port_state* state, __u32 budget) {
  __u32 left = budget;
  int queue;
  for (queue = SPILLWAY_DATA_QUEUES - 1; queue >= 0; --queue) {
    if (state->occupied & (1U << queue)) {
      left -= spillway_serve(state, (__u8)queue, left);
    }
  }
  return budget - left;
}

/* Bytes that the link has served since the last call, overhead included. */
static inline __u32 spillway_served_bytes(const struct spillway_link* link,
                                          struct spillway_virtual_port* port, __u64 now) {
  const __u64 elapsed = now - port->drained_ns;
  const __u64 pause = elapsed < SPILLWAY_LONGEST_PAUSE ? elapsed : SPILLWAY_LONGEST_PAUSE;
  const __u64 served = pause * link->rate + port->fraction; /* below 2^61 */
  const __u64 whole = served >> SPILLWAY_RATE_SHIFT;
  port->drained_ns = now;
  port->fraction = (__u32)(served & ((1U << SPILLWAY_RATE_SHIFT) - 1));
  return whole < 0xFFFFFFFF ? (__u32)whole : 0xFFFFFFFF;
}

static inline void spillway_drain(const struct spillway_port_config* config,
                                  const struct spillway_link* link,
                                  struct spillway_virtual_port* port, __u64 now) {
  struct spillway_port_state* state = &port->state;
  if (now <= port->drained_ns) {
    return;
  }
  if (state->occupied == 0 && port->overhead == 0) {
    port->drained_ns = now; /* an idle link saves nothing up */
    port->fraction = 0;
    return;
  }
  __u32 budget = spillway_served_bytes(link, port, now);
  const __u32 between = spillway_min(port->overhead, budget);
  port->overhead -= between;
  budget -= between;
  if (state->occupied & SPILLWAY_CONTROL_WAITS) {
    const int data_waits = state->occupied != SPILLWAY_CONTROL_WAITS;
    const __u32 share =
        data_waits ? (__u32)((__u64)budget * config->control_share_percent / 100) : budget;
    budget -= spillway_serve(state, SPILLWAY_CONTROL_QUEUE, share);
  }
  budget -= spillway_serve_data(state, budget);
  if (budget != 0 && (state->occupied & SPILLWAY_CONTROL_WAITS)) {
    spillway_serve(state, SPILLWAY_CONTROL_QUEUE, budget);
  }
}

/* While a queue stays below this, the new frame included, it takes the frame unchanged in every
 * mode. So the time need not be known exactly. */
static inline __u32 spillway_calm_bytes(const struct spillway_port_config* config) {
  __u32 calm = config->queue_bytes;
  if (config->mode == SPILLWAY_PORT_ECN) {
    calm = spillway_min(calm, config->red_min_bytes);
  }
  if (spillway_port_trims(config)) {
    calm = spillway_min(calm, config->control_queue_bytes);
    calm = config->ecn_bytes != 0 ? spillway_min(calm, config->ecn_bytes) : calm;
  }
  if (config->mode == SPILLWAY_PORT_SPILLWAY && config->early_drop_bytes != 0) {
    calm = spillway_min(calm, config->early_drop_bytes);
  }
  return calm;
}

/* Accounts for frames that a caller admitted to a calm queue by itself. The port counts them from
 * now on, so at worst it serves them too early. */
static inline void spillway_tell_port(struct spillway_virtual_port* port, __u8 queue, __u32 bytes,
                                      __u32 frames) {
  if (frames != 0 && queue < SPILLWAY_QUEUES) {
    port->state.bytes[queue] += bytes;
    port->state.occupied |= 1U << queue;
    port->overhead += frames * SPILLWAY_WIRE_OVERHEAD;
  }
}

/* Decides about a frame at time `now` and updates the modelled queues. */
static inline void spillway_pass_port(const struct spillway_port_config* config,
                                      const struct spillway_link* link,
                                      struct spillway_virtual_port* port,
                                      const struct spillway_frame* frame, __u64 now, __u32 random,
                                      struct spillway_decision* decision) {
  spillway_drain(config, link, port, now);
  spillway_admit(config, &port->state, frame, random, decision);
  if (decision->verdict == SPILLWAY_ENQUEUE) {
    spillway_tell_port(port, decision->queue, decision->bytes, 1);
  }
}

SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_virtual_port) == 96, "virtual port is 96 bytes");

/* A random word for ECN ports and gray loss (xorshift64*): cheap, reproducible, not for secrets.
 * Each CPU has a state of its own, which must not be zero. */
static inline __u32 spillway_next_random(__u64* state) {
  __u64 x = *state;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  *state = x;
  return (__u32)((x * 0x2545F4914F6CDD1DULL) >> 32);
}

#endif /* SPILLWAY_DATAPLANE_VIRTUAL_PORT_H */
