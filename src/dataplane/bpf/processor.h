/* SPDX-License-Identifier: Apache-2.0
 *
 * What a processor remembers from one frame to the next, so that most frames need neither the clock
 * nor a map's lookup.
 *
 * For one frame in SPILLWAY_FRESH_ONE_IN it reads the clock and looks the receiver up; for those
 * between it may take what it found last. Where the time decides over a frame it is always read;
 * where it does not, a port may after a pause have served so many frames too many, less one.
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

#define SPILLWAY_FRESH_ONE_IN 4

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

static inline __u64 read_clock(struct spillway_processor* processor) {
  processor->clock_ns = bpf_ktime_get_ns();
  return processor->clock_ns;
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
