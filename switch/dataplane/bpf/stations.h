/* SPDX-License-Identifier: Apache-2.0
 *
 * Which port leads to which hardware address, learned as a bridge learns it. The least recently
 * used entries are evicted first.
 *
 * Senders are learned from frames whose receiver's port is unknown, and from all frames that are
 * not Spillway's, such as ARP replies. One in SPILLWAY_LEARN_ONE_IN of the others is used.
 */
#ifndef SPILLWAY_DATAPLANE_BPF_STATIONS_H
#define SPILLWAY_DATAPLANE_BPF_STATIONS_H

#include "switch/dataplane/bpf/kernel_helpers.h"
#include "switch/dataplane/bpf/processor.h"
#include "switch/dataplane/bpf/switch_maps.h"
#include "switch/dataplane/station.h"

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, SPILLWAY_MAX_STATIONS);
  __type(key, struct spillway_station);
  __type(value, __u32);
} stations SEC(".maps");

#define SPILLWAY_LEARN_ONE_IN 64

static inline int is_same_station(const struct spillway_station* a,
                                  const struct spillway_station* b) {
  __u64 bits_of_a;
  __u64 bits_of_b;
  __builtin_memcpy(&bits_of_a, a, sizeof(bits_of_a));
  __builtin_memcpy(&bits_of_b, b, sizeof(bits_of_b));
  return bits_of_a == bits_of_b;
}

/* Records that the frame's sender is behind this interface. */
static inline void learn_station(const __u8* data, const __u8* end,
                                 const struct spillway_tag* beside, __u32 ifindex) {
  struct spillway_station sender;
  if (!spillway_read_sender(data, end, beside, &sender)) {
    return;
  }
  const __u32* number = bpf_map_lookup_elem(&port_numbers, &ifindex);
  if (number == 0) {
    return;
  }
  const __u32* known = bpf_map_lookup_elem(&stations, &sender);
  if (known == 0 || *known != *number) {
    bpf_map_update_elem(&stations, &sender, number, BPF_ANY);
  }
}

/* Finds the port that leads to the frame's receiver. Returns 0 if none is known. */
static inline int find_port(struct spillway_processor* processor, const __u8* data, const __u8* end,
                            const struct spillway_tag* beside, __u32* port) {
  struct spillway_station receiver;
  if (!spillway_read_receiver(data, end, beside, &receiver)) {
    return 0;
  }
  if (is_fresh(processor) || !is_same_station(&receiver, &processor->receiver)) {
    const __u32* number = bpf_map_lookup_elem(&stations, &receiver);
    if (number == 0) {
      return 0;
    }
    processor->receiver = receiver;
    processor->receiver_port = *number;
  }
  *port = processor->receiver_port;
  return 1;
}

#endif /* SPILLWAY_DATAPLANE_BPF_STATIONS_H */
