/* SPDX-License-Identifier: Apache-2.0
 *
 * A CPU's memory between frames, so that most frames need neither the clock, nor a map
 * lookup, nor a port's lock.
 *
 * For one frame in SPILLWAY_FRESH_ONE_IN the CPU looks the receiver up and asks the port at the
 * current time. Frames in between reuse that lookup if they have the same receiver. While their
 * queue is calm (spillway_calm_bytes()) they are admitted without asking; the port is told of them
 * with the next frame that asks it. So, per CPU, a port may learn of SPILLWAY_FRESH_ONE_IN - 1
 * frames too late. After a pause it may serve as many too early.
 */
#ifndef SPILLWAY_DATAPLANE_BPF_PROCESSOR_H
#define SPILLWAY_DATAPLANE_BPF_PROCESSOR_H

#include "switch/dataplane/bpf/kernel_helpers.h"
#include "switch/dataplane/bpf/switch_maps.h"

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct spillway_processor);
} processors SEC(".maps");

/* Port number by interface index. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, SPILLWAY_MAX_PORTS);
  __type(key, __u32);
  __type(value, __u32);
} port_numbers SEC(".maps");

static inline struct spillway_processor* this_processor(void) {
  const __u32 zero = 0;
  struct spillway_processor* processor = bpf_map_lookup_elem(&processors, &zero);
  if (processor != 0) {
    processor->frames += 1;
  }
  return processor;
}

static inline int is_fresh(const struct spillway_processor* processor) {
  return processor->frames % SPILLWAY_FRESH_ONE_IN == 0;
}

/* Bytes that this CPU admitted to the queue and has not told the port of. */
static inline __u32 untold_bytes(const struct spillway_processor* processor, __u32 port,
                                 __u8 queue) {
  return processor->untold_port == port && processor->untold_queue == queue
             ? processor->untold_bytes
             : 0;
}

/* Finds the number of the interface's port. Numbers do not change while the switch is attached, so
 * the last one is cached. */
static inline int find_own_port(struct spillway_processor* processor, __u32 ifindex, __u32* port) {
  if (processor->ifindex != ifindex) {
    const __u32* number = bpf_map_lookup_elem(&port_numbers, &ifindex);
    if (number == 0) {
      return 0;
    }
    processor->ifindex = ifindex;
    processor->ifindex_port = *number;
  }
  *port = processor->ifindex_port;
  return 1;
}

#endif /* SPILLWAY_DATAPLANE_BPF_PROCESSOR_H */
