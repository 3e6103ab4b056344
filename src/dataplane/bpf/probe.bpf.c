/* SPDX-License-Identifier: Apache-2.0
 *
 * What the switch's programs are measured with: programs that do nothing, whose cost is that of
 * being called, and the place where forwarded frames end.
 */
#include <linux/pkt_cls.h>

#include "dataplane/bpf/kernel_helpers.h"

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

/* Counts, and lets nothing go on. */
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
