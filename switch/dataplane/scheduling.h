/* SPDX-License-Identifier: Apache-2.0
 *
 * Which queue of an output port is served next, and how much each queue holds.
 *
 * Data queues are served in strict priority. While both data and control wait, the control queue
 * gets control_share_percent of the bytes. control_balance grows by share x bytes of data sent and
 * shrinks by (100 - share) x bytes of control sent. Control goes first while the balance is not
 * negative. The balance is reset when either side runs empty, so an idle queue saves nothing up.
 * The port never idles while a queue holds a packet.
 *
 * The caller reports every frame that enters or leaves a queue, in queue order. |control_balance|
 * stays below 100 x SPILLWAY_MAX_FRAME_BYTES.
 */
#ifndef SPILLWAY_DATAPLANE_SCHEDULING_H
#define SPILLWAY_DATAPLANE_SCHEDULING_H

#include "switch/dataplane/port.h"

#define SPILLWAY_CONTROL_WAITS (1U << SPILLWAY_CONTROL_QUEUE)
#define SPILLWAY_NO_QUEUE (-1)

static inline void spillway_enqueued(struct spillway_port_state* state, __u8 queue, __u32 bytes) {
  state->bytes[queue] += bytes;
  state->packets[queue] += 1;
  state->occupied |= 1U << queue;
}

/* Index of the highest set bit among bits 0..7, at least one of which must be set. Not
 * __builtin_clz: eBPF has no such instruction. */
static inline int spillway_highest_queue(__u32 bits) {
  int queue = 0;
  if (bits & 0xF0) {
    queue += 4;
    bits >>= 4;
  }
  if (bits & 0x0C) {
    queue += 2;
    bits >>= 2;
  }
  return queue + ((bits & 0x02) ? 1 : 0);
}

/* The queue to serve next, or SPILLWAY_NO_QUEUE when all are empty. */
static inline int spillway_next_queue(const struct spillway_port_state* state) {
  const __u32 data = state->occupied & (SPILLWAY_CONTROL_WAITS - 1);
  const int control_waits = (state->occupied & SPILLWAY_CONTROL_WAITS) != 0;
  if (control_waits && (data == 0 || state->control_balance >= 0)) {
    return SPILLWAY_CONTROL_QUEUE;
  }
  return data == 0 ? SPILLWAY_NO_QUEUE : spillway_highest_queue(data);
}

static inline void spillway_dequeued(const struct spillway_port_config* config,
                                     struct spillway_port_state* state, __u8 queue, __u32 bytes) {
  const __u32 data = state->occupied & (SPILLWAY_CONTROL_WAITS - 1);
  const int both_wait = data != 0 && (state->occupied & SPILLWAY_CONTROL_WAITS) != 0;
  const __s32 share = config->control_share_percent;
  if (!both_wait) {
    state->control_balance = 0;
  } else if (queue == SPILLWAY_CONTROL_QUEUE) {
    state->control_balance -= (__s32)bytes * (100 - share);
  } else {
    state->control_balance += (__s32)bytes * share;
  }
  state->bytes[queue] -= bytes;
  state->packets[queue] -= 1;
  if (state->packets[queue] == 0) {
    state->occupied &= ~(1U << queue);
  }
}

#endif /* SPILLWAY_DATAPLANE_SCHEDULING_H */
