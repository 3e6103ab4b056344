/* SPDX-License-Identifier: Apache-2.0
 *
 * Sum packets in frames, for C, C++ and eBPF: finding them, reading their addresses as a route
 * (sum_jobs.h), and applying a slot's decision. As in frame.h, fields are checked against the bytes
 * that are there.
 *
 * Only IPv4 packets without options are changed. Their UDP checksum becomes 0 (none): words change
 * with every addition, and tags (wire/sum_datagram.h) detect more than a checksum would.
 *
 * A route's shape is the offset of its IP header: frames with equally many VLAN tags have the same
 * shape.
 */
#ifndef SPILLWAY_DATAPLANE_SUM_FRAME_H
#define SPILLWAY_DATAPLANE_SUM_FRAME_H

#include "switch/dataplane/frame.h"
#include "switch/dataplane/sum_copies.h"

#define SPILLWAY_SUM_DATAGRAM (SPILLWAY_IPV4_HEADER + SPILLWAY_UDP_HEADER + SPILLWAY_SUM_PACKET)

/* A sum packet in a frame. Its UDP payload begins SPILLWAY_UDP_HEADER bytes after
 * layout.transport. */
struct spillway_sum_frame {
  __u8 is_plain;  /* IPv4 without options: can be changed */
  __u8 has_words; /* not trimmed, and all of it is in [data, end) */
  __u8 reserved[2];
};

static inline __u32 spillway_load_long(const __u8* from) {
#ifdef __bpf__
  typedef __u32 __attribute__((may_alias)) spillway_long;
  return *(const spillway_long*)from;
#else
  __u32 word;
  __builtin_memcpy(&word, from, sizeof(word));
  return word;
#endif
}

static inline void spillway_store_long(__u8* to, __u32 word) {
#ifdef __bpf__
  typedef __u32 __attribute__((may_alias)) spillway_long;
  *(spillway_long*)to = word;
#else
  __builtin_memcpy(to, &word, sizeof(word));
#endif
}

/* ------------------------------------------------------------------ reading */

/* Finds the sum packet in a frame of `bytes` bytes with this layout, and reads its head
 * (spillway_load_sum_head()). Returns NULL if there is none. */
static inline const __u8* spillway_find_sum_head(const __u8* data, const __u8* end, __u32 bytes,
                                                 const struct spillway_layout* layout,
                                                 union spillway_sum_image* image,
                                                 struct spillway_sum_frame* sum) {
  const __u8* udp = spillway_udp_of(data, end, layout);
  if (udp == NULL || layout->end > bytes) {
    return NULL;
  }
  const __u32 length = spillway_load_be16(udp + 4);
  const __u8* payload = udp + SPILLWAY_UDP_HEADER;
  if (layout->transport + length != layout->end ||
      length < SPILLWAY_UDP_HEADER + sizeof(struct spillway_sum_header) ||
      payload + sizeof(struct spillway_sum_header) > end) {
    return NULL;
  }
  spillway_load_sum_head(payload, image);
  const __u32 sent = SPILLWAY_UDP_HEADER + spillway_sum_packet_size(image->fields.kind);
  if (spillway_version_of(image->fields.common.version_type) != SPILLWAY_WIRE_VERSION ||
      spillway_type_of(image->fields.common.version_type) != SPILLWAY_TYPE_SUM ||
      !spillway_is_valid_sum(&image->fields) || length > sent) {
    return NULL;
  }
  sum->is_plain = !layout->is_ipv6 && layout->transport == layout->ip + SPILLWAY_IPV4_HEADER;
  sum->has_words = length == sent && udp + sent <= end;
  sum->reserved[0] = 0;
  sum->reserved[1] = 0;
  return payload;
}

/* Reads the rest of it. If the frame met congestion, the image's marks say so. */
static inline void spillway_read_sum(const __u8* data, const __u8* end, const __u8* payload,
                                     const struct spillway_layout* layout,
                                     union spillway_sum_image* image) {
  spillway_load_sum_header(payload, image);
  if ((spillway_traffic_class(data, end, layout) & 0x03) == SPILLWAY_ECN_CE) {
    image->fields.marks |= SPILLWAY_SUM_CONGESTED;
  }
}

/* Finds and reads the whole header. Returns 0 if there is none. */
static inline int spillway_find_sum(const __u8* data, const __u8* end, __u32 bytes,
                                    const struct spillway_layout* layout,
                                    union spillway_sum_image* image,
                                    struct spillway_sum_frame* sum) {
  const __u8* payload = spillway_find_sum_head(data, end, bytes, layout, image, sum);
  if (payload == NULL) {
    return 0;
  }
  spillway_read_sum(data, end, payload, layout, image);
  return 1;
}

/* The packet's words, or NULL if they are not all there. */
static inline __u8* spillway_sum_words_in(__u8* data, const __u8* end,
                                          const struct spillway_layout* layout) {
  __u8* words = data + layout->transport + SPILLWAY_UDP_HEADER + sizeof(struct spillway_sum_header);
  return words + SPILLWAY_SUM_WORD_BYTES <= end ? words : NULL;
}

/* Reads the addresses of a frame with a plain sum packet. Returns 0 if it is too short. */
static inline int spillway_read_route(const __u8* data, const __u8* end,
                                      const struct spillway_layout* layout,
                                      struct spillway_sum_route* route) {
  const __u8* ip = data + layout->ip;
  const __u8 tags = layout->ip - SPILLWAY_ETHERNET_HEADER;
  if (ip + SPILLWAY_IPV4_HEADER + SPILLWAY_UDP_HEADER > end ||
      data + SPILLWAY_ETHERNET_HEADER + SPILLWAY_IPV4_HEADER > end) {
    return 0;
  }
  const __u64 first_tag = tags >= SPILLWAY_VLAN_TAG ? spillway_load_long(data + 12) : 0;
  const __u64 second_tag = tags > SPILLWAY_VLAN_TAG ? spillway_load_long(data + 16) : 0;
  __builtin_memset(route->reserved, 0, sizeof(route->reserved));
  route->shape = layout->ip;
  route->traffic_class = ip[1];
  route->bytes[0] = spillway_load_long(data) | (__u64)spillway_load_long(data + 4) << 32;
  route->bytes[1] = spillway_load_long(data + 8) | first_tag << 32;
  route->bytes[2] = second_tag | (__u64)spillway_load_long(ip + 12) << 32;
  route->bytes[3] = spillway_load_long(ip + 16) | (__u64)spillway_load_long(ip + 20) << 32;
  return 1;
}

/* ------------------------------------------------------------------ changing */

static inline void spillway_no_udp_checksum(__u8* data, const __u8* end,
                                            const struct spillway_layout* layout) {
  __u8* udp = data + layout->transport;
  if (udp + SPILLWAY_UDP_HEADER <= end) {
    spillway_store_word(udp + 6, 0);
  }
}

/* Writes a changed header back. */
static inline void spillway_write_sum(__u8* data, const __u8* end,
                                      const struct spillway_layout* layout,
                                      const union spillway_sum_image* image) {
  __u8* payload = data + layout->transport + SPILLWAY_UDP_HEADER;
  if (payload + sizeof(struct spillway_sum_header) > end) {
    return;
  }
  spillway_store_sum_header(payload, image);
  spillway_no_udp_checksum(data, end, layout);
}

/* Replaces two words of an IPv4 header and updates its checksum. */
static inline void spillway_replace_ipv4_long(__u8* ip, __u32 offset, __u32 word) {
  spillway_replace_ipv4_word(ip, offset, word & 0xFFFF);
  spillway_replace_ipv4_word(ip, offset + 2, word >> 16);
}

/* Sends the frame by this route, which must have its shape: it now carries what was in a slot. */
static inline void spillway_write_route(__u8* data, const __u8* end,
                                        const struct spillway_layout* layout,
                                        const struct spillway_sum_route* route) {
  __u8* ip = data + layout->ip;
  const __u8 tags = layout->ip - SPILLWAY_ETHERNET_HEADER;
  if (ip + SPILLWAY_IPV4_HEADER + SPILLWAY_UDP_HEADER > end ||
      data + SPILLWAY_ETHERNET_HEADER + SPILLWAY_IPV4_HEADER > end) {
    return;
  }
  spillway_store_long(data, (__u32)route->bytes[0]);
  spillway_store_long(data + 4, (__u32)(route->bytes[0] >> 32));
  spillway_store_long(data + 8, (__u32)route->bytes[1]);
  if (tags >= SPILLWAY_VLAN_TAG) {
    spillway_store_long(data + 12, (__u32)(route->bytes[1] >> 32));
  }
  if (tags > SPILLWAY_VLAN_TAG) {
    spillway_store_long(data + 16, (__u32)route->bytes[2]);
  }
  spillway_replace_ipv4_long(ip, 12, (__u32)(route->bytes[2] >> 32));
  spillway_replace_ipv4_long(ip, 16, (__u32)route->bytes[3]);
  spillway_store_long(ip + 20, (__u32)(route->bytes[3] >> 32));
  spillway_store_word(ip + 26, 0);
  spillway_set_traffic_class(data, end, layout, route->traffic_class);
}

/* Addresses the frame to the source of this route. Its own source and its VLAN tags stay. */
static inline void spillway_readdress(__u8* data, const __u8* end,
                                      const struct spillway_layout* layout,
                                      const struct spillway_sum_route* route) {
  __u8* ip = data + layout->ip;
  if (ip + SPILLWAY_IPV4_HEADER + SPILLWAY_UDP_HEADER > end ||
      data + SPILLWAY_ETHERNET_HEADER > end) {
    return;
  }
  spillway_store_word(data, (__u32)(route->bytes[0] >> 48));
  spillway_store_long(data + 2, (__u32)route->bytes[1]);
  spillway_replace_ipv4_long(ip, 16, (__u32)(route->bytes[2] >> 32));
  spillway_store_word(ip + 22, (__u32)(route->bytes[3] >> 32));
  spillway_store_word(ip + 26, 0);
}

/* Swaps source and destination: the frame goes back where it came from. */
static inline void spillway_turn_route(__u8* data, const __u8* end,
                                       const struct spillway_layout* layout) {
  __u8* ip = data + layout->ip;
  if (ip + SPILLWAY_IPV4_HEADER + SPILLWAY_UDP_HEADER > end ||
      data + SPILLWAY_ETHERNET_HEADER > end) {
    return;
  }
  const __u32 high = spillway_load_word(data);
  const __u32 low = spillway_load_long(data + 2);
  const __u32 source = spillway_load_long(ip + 12);
  const __u32 ports = spillway_load_long(ip + 20);
  spillway_store_word(data, spillway_load_word(data + 6));
  spillway_store_long(data + 2, spillway_load_long(data + 8));
  spillway_store_word(data + 6, high);
  spillway_store_long(data + 8, low);
  spillway_store_long(ip + 12,
                      spillway_load_long(ip + 16)); /* their sum, and so the checksum, stays */
  spillway_store_long(ip + 16, source);
  spillway_store_long(ip + 20, ports << 16 | ports >> 16);
}

/* Sets the lengths of a FLUSH that was grown to a part's size, and its traffic class to that of the
 * parts. */
static inline void spillway_set_sum_lengths(__u8* data, const __u8* end,
                                            const struct spillway_layout* layout,
                                            __u8 traffic_class) {
  __u8* ip = data + layout->ip;
  if (ip + SPILLWAY_IPV4_HEADER + SPILLWAY_UDP_HEADER > end) {
    return;
  }
  spillway_replace_ipv4_word(ip, 2, spillway_swap16(SPILLWAY_SUM_DATAGRAM));
  spillway_store_be16(ip + 24, SPILLWAY_UDP_HEADER + SPILLWAY_SUM_PACKET);
  spillway_store_word(ip + 26, 0);
  spillway_set_traffic_class(data, end, layout, traffic_class);
}

#endif /* SPILLWAY_DATAPLANE_SUM_FRAME_H */
