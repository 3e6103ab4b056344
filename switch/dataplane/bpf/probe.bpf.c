/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs to measure the switch with: no-ops that cost only their call, a generator that feeds a
 * port, and a sink for forwarded frames.
 */
#include <linux/pkt_cls.h>

#include "switch/dataplane/bpf/kernel_helpers.h"
#include "switch/dataplane/bpf/probe_maps.h"
#include "switch/dataplane/frame.h"

/* Set before loading: the interface that spillway_feed sends to. */
const volatile __u32 feed_ifindex = 0;

/* Sum packets sent. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64);
} feeds SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64);
} arrivals SEC(".maps");

SEC("xdp")
int spillway_pass_xdp(struct xdp_md* context) {
  (void)context;
  return XDP_PASS;
}

SEC("tc")
int spillway_pass_tc(struct __sk_buff* buffer) {
  (void)buffer;
  return TC_ACT_OK;
}

/* Rewrites the frame's sum packet (over IPv4) into the next part: each rank in turn, then the next
 * chunk. Resets level, marks and ranks, which a switch may have changed. */
static inline void make_part(__u8* data, const __u8* end, __u64 number) {
  struct spillway_sum_header* header =
      (struct spillway_sum_header*)(data + SPILLWAY_ETHERNET_HEADER + SPILLWAY_IPV4_HEADER +
                                    SPILLWAY_UDP_HEADER);
  const __u32 rank = 1 + (__u32)(number % SPILLWAY_FEED_RANKS);
  const __u64 chunk = number / SPILLWAY_FEED_RANKS;
  if ((const __u8*)(header + 1) > end) {
    return;
  }
  header->common.source = (__u16)rank;
  header->common.packet = (__u16)(chunk % SPILLWAY_FEED_CHUNKS);
  header->common.operation = (__u32)(chunk / SPILLWAY_FEED_CHUNKS) & 0xFFFFFF;
  header->level = 0;
  header->marks = 0;
  header->ranks[0] = 1ULL << rank;
  header->ranks[1] = 0;
}

/* Sends frames out of an interface; they arrive at its far end. */
SEC("xdp")
int spillway_feed(struct xdp_md* context) {
  const __u32 zero = 0;
  __u8* data = (__u8*)(long)context->data;
  const __u8* end = (const __u8*)(long)context->data_end;
  __u64* number = bpf_map_lookup_elem(&feeds, &zero);
  struct spillway_layout layout;
  struct spillway_frame frame;
  spillway_read_frame(data, end, (__u32)(end - data), &layout, &frame);
  if (number != 0 && (frame.flags & SPILLWAY_FRAME_SUM)) {
    make_part(data, end, *number);
    *number += 1;
  }
  return (int)bpf_redirect(feed_ifindex, 0);
}

/* Counts frames and drops them. */
SEC("xdp")
int spillway_sink(struct xdp_md* context) {
  const __u32 zero = 0;
  __u64* count = bpf_map_lookup_elem(&arrivals, &zero);
  (void)context;
  if (count != 0) {
    *count += 1;
  }
  return XDP_DROP;
}

char license_name[] SEC("license") = "Apache-2.0";
