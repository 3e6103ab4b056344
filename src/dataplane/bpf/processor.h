/* SPDX-License-Identifier: Apache-2.0
 *
 * What a processor remembers from one frame to the next, so that most frames need neither the
 * clock, nor a map's lookup, nor a port's lock.
 *
 * For one frame in SPILLWAY_FRESH_ONE_IN it looks the receiver up and reckons with the port at the
 * time of the clock. Those between go to the receiver it found last, and where their queue is calm
 * (spillway_calm_bytes()) they go in whatever the time is: the port is told of them with the next
 * frame that it is asked about. So a port may, per processor, know of so many frames too late, less
 * one; after a pause it may serve as many too early.
 */
#ifndef SPILLWAY_DATAPLANE_BPF_PROCESSOR_H
#define SPILLWAY_DATAPLANE_BPF_PROCESSOR_H

#include "dataplane/bpf/kernel_helpers.h"
#include "dataplane/bpf/switch_maps.h"

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct spillway_processor);
} processors SEC(".maps");

/* From the index of a port's interface to its number. */
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

/* What it has let into this queue of this port and not told of. */
static inline __u32 untold_bytes(const struct spillway_processor* processor, __u32 port,
                                 __u8 queue) {
  return processor->untold_port == port && processor->untold_queue == queue
             ? processor->untold_bytes
             : 0;
}

/* The number of the port that is this interface. Numbers do not change while the switch is
 * attached. */
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
