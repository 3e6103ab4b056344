/* SPDX-License-Identifier: Apache-2.0
 *
 * Fix-up at receivers, for switches that trim packets and leave the length fields as they were. It
 * makes them agree with the frame again, so that the kernel hands the head to an ordinary socket.
 * For C, C++ and eBPF.
 *
 * It touches only Spillway data packets whose UDP length says that there was more. The checks they
 * carry tell good content from bad. The IPv4 header checksum is computed anew, because not all
 * switches keep it right. VLAN tags, in the frame or stripped by a card, do not matter: lengths
 * begin at the IP header.
 */
#ifndef SPILLWAY_DATAPLANE_FIXUP_H
#define SPILLWAY_DATAPLANE_FIXUP_H

#include "switch/dataplane/frame.h"

enum spillway_fixup_outcome {
  SPILLWAY_FIXUP_NOT_NEEDED = 0,
  SPILLWAY_FIXUP_DONE = 1,
  SPILLWAY_FIXUP_REFUSED = 2 /* longer than any trimmed packet: cut by something else */
};

/* `ip` is an IPv4 header, perhaps with options. */
static inline void spillway_renew_ipv4_checksum(__u8* ip, const __u8* end) {
  if (ip + SPILLWAY_IPV4_HEADER > end) {
    return;
  }
  const __u32 words = ip[0] & 0x0F;
  const __u8* word = ip;
  __u64 sum = 0;
  __u32 i;
  spillway_store_word(ip + 10, 0);
  for (i = 0; i < 15 && i < words && word + 4 <= end; ++i) {
    sum += spillway_load_word(word) + spillway_load_word(word + 2);
    word += 4;
  }
  spillway_store_word(ip + 10, ~spillway_fold(sum) & 0xFFFF);
}

/* True if `udp` begins a Spillway data packet, trimmed or not. */
static inline int spillway_carries_data(const __u8* udp, const __u8* end) {
  const __u8* payload = udp + SPILLWAY_UDP_HEADER;
  struct spillway_frame frame;
  frame.flags = 0;
  if (payload + sizeof(struct spillway_packet_header) > end) {
    return 0;
  }
  spillway_read_payload(payload, end, (__u32)(end - payload), &frame);
  return (frame.flags & (SPILLWAY_FRAME_TRIMMABLE | SPILLWAY_FRAME_SUM)) ==
         SPILLWAY_FRAME_TRIMMABLE;
}

/* The whole frame must be in [data, end). */
static inline int spillway_fixup_frame(__u8* data, const __u8* end) {
  const __u32 bytes = (__u32)(end - data);
  struct spillway_layout layout;
  spillway_find_layout(data, end, &layout);
  const __u8* udp = spillway_udp_of(data, end, &layout);
  if (udp == NULL || layout.end < bytes ||
      layout.transport + spillway_load_be16(udp + 4) <= bytes || !spillway_carries_data(udp, end)) {
    return SPILLWAY_FIXUP_NOT_NEEDED;
  }
  if (bytes > SPILLWAY_MAX_TRIM_BYTES) {
    return SPILLWAY_FIXUP_REFUSED;
  }
  spillway_set_ip_length(data, end, bytes, &layout);
  if (!layout.is_ipv6) {
    spillway_renew_ipv4_checksum(data + layout.ip, end);
  }
  spillway_set_udp_length(data, end, bytes, &layout);
  return SPILLWAY_FIXUP_DONE;
}

#endif /* SPILLWAY_DATAPLANE_FIXUP_H */
