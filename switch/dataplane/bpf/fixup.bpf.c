/* SPDX-License-Identifier: Apache-2.0
 *
 * XDP program at a receiver's interface: corrects the length fields of Spillway packets that a
 * switch trimmed (fixup.h). All frames pass.
 */
#define SPILLWAY_LONGEST_SUM SPILLWAY_MAX_TRIM_BYTES

#include "switch/dataplane/fixup.h"
#include "switch/dataplane/bpf/kernel_helpers.h"

/* Set before loading: frames may span several buffers (Linux 5.18). */
const volatile __u8 has_fragments = 0;

/* Frame counts by enum spillway_fixup_outcome. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 3);
  __type(key, __u32);
  __type(value, __u64);
} fixups SEC(".maps");

SEC("xdp")
int spillway_fixup(struct xdp_md* context) {
  __u8* data = (__u8*)(long)context->data;
  const __u8* end = (const __u8*)(long)context->data_end;
  /* A frame that spans several buffers is longer than any trimmed frame. */
  const int is_one_piece = !has_fragments || bpf_xdp_get_buff_len(context) == (__u64)(end - data);
  const __u32 outcome =
      is_one_piece ? (__u32)spillway_fixup_frame(data, end) : SPILLWAY_FIXUP_NOT_NEEDED;
  __u64* count = bpf_map_lookup_elem(&fixups, &outcome);
  if (count != 0) {
    *count += 1;
  }
  return XDP_PASS;
}

char license_name[] SEC("license") = "Apache-2.0";
