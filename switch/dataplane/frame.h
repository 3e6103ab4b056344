/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of an Ethernet frame that a switch reads and changes, for C, C++ and eBPF. Frames come
 * from real interfaces: nothing in them is trusted before it is checked against the bytes that are
 * there.
 *
 * Understood are up to SPILLWAY_MAX_TAGS nested VLAN tags (802.1Q, 802.1ad), IPv4 with options,
 * IPv6, UDP and Spillway. Fragments, IPv6 packets with extension headers and frames with more tags
 * are forwarded, but never treated as Spillway packets.
 *
 * A kernel may keep a frame's outermost tag beside it, in a socket buffer's fields. Functions with
 * a parameter `beside` take that tag. Offsets and lengths count only the bytes in the frame. A port
 * counts the tag, too, because it is part of the frame on every wire.
 *
 * A frame is [data, end), never NULL. `bytes` is its length; more of it may follow after `end`, in
 * a socket buffer's pages. Every access is preceded by a comparison with `end`, in the form that
 * the kernel's verifier follows. Little-endian machines only.
 */
#ifndef SPILLWAY_DATAPLANE_FRAME_H
#define SPILLWAY_DATAPLANE_FRAME_H

#include "switch/dataplane/port.h"
#include "wire/packet.h"
#include "wire/packet_check.h"

#define SPILLWAY_PROTOCOL_UDP 17

#define SPILLWAY_ETHERTYPE_IPV4 0x0800
#define SPILLWAY_ETHERTYPE_IPV6 0x86DD
#define SPILLWAY_ETHERTYPE_VLAN 0x8100
#define SPILLWAY_ETHERTYPE_SERVICE_VLAN 0x88A8

#define SPILLWAY_MAX_TAGS 2
#define SPILLWAY_LONGEST_IPV4_HEADER 60

/* Size of the longest headers, up to and including Spillway's. They must be in [data, end). */
#define SPILLWAY_LONGEST_HEADERS                                      \
  (SPILLWAY_ETHERNET_HEADER + SPILLWAY_MAX_TAGS * SPILLWAY_VLAN_TAG + \
   SPILLWAY_LONGEST_IPV4_HEADER + SPILLWAY_UDP_HEADER + sizeof(struct spillway_sum_header))

/* Most bytes that a checksum may cover. eBPF programs set it to the longest trimmed frame, because
 * the verifier follows every step of the loop. */
#ifndef SPILLWAY_LONGEST_SUM
#define SPILLWAY_LONGEST_SUM SPILLWAY_MAX_FRAME_BYTES
#endif

/* Where the parts of an IP packet are. The headers named are within the frame. `end` is what the IP
 * header says and may be beyond the frame. */
struct spillway_layout {
  __u32 end;
  __u8 ip;        /* 0: not IP, or not understood */
  __u8 transport; /* 0: a fragment. Small types give the verifier bounds */
  __u8 protocol;
  __u8 is_ipv6;
};

/* A VLAN tag that a kernel keeps beside its frame. */
struct spillway_tag {
  __u16 type;  /* one of the two VLAN types above; 0: no tag */
  __u16 value; /* priority, VLAN */
};

static inline __u32 spillway_load_be16(const __u8* from) {
  return (__u32)from[0] << 8 | from[1];
}

static inline void spillway_store_be16(__u8* to, __u32 value) {
  to[0] = (__u8)(value >> 8);
  to[1] = (__u8)value;
}

/* Header words in memory order: checksums do not depend on the byte order. */
static inline __u32 spillway_load_word(const __u8* from) {
  return (__u32)from[1] << 8 | from[0];
}

static inline void spillway_store_word(__u8* to, __u32 word) {
  to[0] = (__u8)word;
  to[1] = (__u8)(word >> 8);
}

/* ------------------------------------------------------------------ reading */

static inline void spillway_find_ipv4(const __u8* data, const __u8* end, __u8 offset,
                                      struct spillway_layout* layout) {
  const __u8* ip = data + offset;
  if (ip + SPILLWAY_IPV4_HEADER > end || ip[0] >> 4 != 4) {
    return;
  }
  const __u32 header = (ip[0] & 0x0FU) * 4;
  const __u32 total = spillway_load_be16(ip + 2);
  if (header < SPILLWAY_IPV4_HEADER || ip + header > end || total < header) {
    return;
  }
  const __u32 is_fragment = spillway_load_be16(ip + 6) & 0x3FFF; /* offset, or more fragments */
  layout->ip = offset;
  layout->transport = is_fragment ? 0 : (__u8)(offset + header);
  layout->end = offset + total;
  layout->protocol = ip[9];
}

static inline void spillway_find_ipv6(const __u8* data, const __u8* end, __u8 offset,
                                      struct spillway_layout* layout) {
  const __u8* ip = data + offset;
  if (ip + SPILLWAY_IPV6_HEADER > end || ip[0] >> 4 != 6) {
    return;
  }
  layout->ip = offset;
  layout->transport = (__u8)(offset + SPILLWAY_IPV6_HEADER);
  layout->end = layout->transport + spillway_load_be16(ip + 4);
  layout->protocol = ip[6];
  layout->is_ipv6 = 1;
}

static inline int spillway_is_tag(__u32 type) {
  return type == SPILLWAY_ETHERTYPE_VLAN || type == SPILLWAY_ETHERTYPE_SERVICE_VLAN;
}

static inline __u32 spillway_bytes_beside(const struct spillway_tag* beside) {
  return beside->type != 0 ? SPILLWAY_VLAN_TAG : 0;
}

/* Like spillway_find_layout(), for a frame whose outermost tag may be beside it. */
static inline void spillway_find_layout_beside(const __u8* data, const __u8* end,
                                               const struct spillway_tag* beside,
                                               struct spillway_layout* layout) {
  __u8 ip = SPILLWAY_ETHERNET_HEADER;
  __u32 tags = beside->type != 0 ? 1 : 0;
  layout->ip = 0;
  layout->transport = 0;
  layout->end = 0;
  layout->protocol = 0;
  layout->is_ipv6 = 0;
  if (data + SPILLWAY_ETHERNET_HEADER > end) {
    return;
  }
  __u32 type = spillway_load_be16(data + SPILLWAY_ETHERNET_HEADER - 2);
  for (; tags < SPILLWAY_MAX_TAGS && spillway_is_tag(type); ++tags) {
    ip += SPILLWAY_VLAN_TAG;
    const __u8* behind = data + ip;
    if (behind > end) {
      return;
    }
    type = spillway_load_be16(behind - 2);
  }
  if (type == SPILLWAY_ETHERTYPE_IPV4) {
    spillway_find_ipv4(data, end, ip, layout);
  } else if (type == SPILLWAY_ETHERTYPE_IPV6) {
    spillway_find_ipv6(data, end, ip, layout);
  }
}

static inline void spillway_find_layout(const __u8* data, const __u8* end,
                                        struct spillway_layout* layout) {
  const struct spillway_tag none = {0, 0};
  spillway_find_layout_beside(data, end, &none, layout);
}

/* The UDP header if it is complete, else NULL. Callers must use the returned pointer: the verifier
 * knows the bounds only of the pointer that was compared. */
static inline const __u8* spillway_udp_of(const __u8* data, const __u8* end,
                                          const struct spillway_layout* layout) {
  const __u8* udp = data + layout->transport;
  if (layout->protocol != SPILLWAY_PROTOCOL_UDP || layout->transport == 0 ||
      udp + SPILLWAY_UDP_HEADER > end) {
    return NULL;
  }
  return udp;
}

/* DSCP << 2 | ECN. The layout must have an IP header. */
static inline __u8 spillway_traffic_class(const __u8* data, const __u8* end,
                                          const struct spillway_layout* layout) {
  const __u8* ip = data + layout->ip;
  if (ip + 2 > end) {
    return 0;
  }
  return layout->is_ipv6 ? (__u8)(ip[0] << 4 | ip[1] >> 4) : ip[1];
}

/* Sum packets with words can be trimmed: the header that is left tells what is lost. Sum packets
 * without words count as control packets. */
static inline void spillway_read_sum_payload(const __u8* payload, __u32 bytes,
                                             struct spillway_frame* frame) {
  const struct spillway_sum_header* header = (const struct spillway_sum_header*)payload;
  if (!spillway_is_sum(header, bytes)) {
    return;
  }
  if (spillway_sum_has_words(header->kind)) {
    frame->flags = SPILLWAY_FRAME_TRIMMABLE | SPILLWAY_FRAME_SUM;
    frame->importance = spillway_importance_of(header->common.service);
  } else {
    frame->flags = SPILLWAY_FRAME_CONTROL | SPILLWAY_FRAME_SUM;
  }
}

static inline void spillway_read_data_payload(const struct spillway_packet_header* header,
                                              int is_valid, struct spillway_frame* frame) {
  if (is_valid) {
    frame->flags = SPILLWAY_FRAME_TRIMMABLE;
    frame->importance = spillway_importance_of(header->service);
  }
}

/* Sets flags and importance if a UDP payload of `bytes` bytes is a Spillway packet. At least the
 * common header must be readable at `payload`, and as much as can be read ends at `end`. */
static inline void spillway_read_payload(const __u8* payload, const __u8* end, __u32 bytes,
                                         struct spillway_frame* frame) {
  const struct spillway_packet_header* header = (const struct spillway_packet_header*)payload;
  const __u8 type = spillway_type_of(header->version_type);
  if (spillway_version_of(header->version_type) != SPILLWAY_WIRE_VERSION ||
      bytes > SPILLWAY_MAX_PACKET) {
    return;
  }
  if (type == SPILLWAY_TYPE_BYTES) {
    spillway_read_data_payload(header, spillway_is_valid_bytes(header, bytes), frame);
  } else if (type != SPILLWAY_TYPE_PLANES && type != SPILLWAY_TYPE_SUM) {
    frame->flags = spillway_is_control(header) ? SPILLWAY_FRAME_CONTROL : 0;
  } else if (bytes >= sizeof(struct spillway_planes_header) &&
             payload + sizeof(struct spillway_planes_header) <= end) {
    if (type == SPILLWAY_TYPE_SUM) {
      spillway_read_sum_payload(payload, bytes, frame);
    } else {
      spillway_read_data_payload(
          header, spillway_is_valid_planes((const struct spillway_planes_header*)payload), frame);
    }
  }
}

/* Like spillway_read_frame(), for a frame whose outermost tag may be beside it. `bytes` does not
 * include that tag. */
static inline void spillway_read_frame_beside(const __u8* data, const __u8* end, __u32 bytes,
                                              const struct spillway_tag* beside,
                                              struct spillway_layout* layout,
                                              struct spillway_frame* frame) {
  frame->bytes = bytes + spillway_bytes_beside(beside);
  frame->dscp = 0;
  frame->ecn = 0;
  frame->importance = 0;
  frame->flags = 0;
  spillway_find_layout_beside(data, end, beside, layout);
  if (layout->ip == 0) {
    return;
  }
  const __u8 traffic_class = spillway_traffic_class(data, end, layout);
  frame->dscp = traffic_class >> 2;
  frame->ecn = traffic_class & 0x03;
  const __u8* udp = spillway_udp_of(data, end, layout);
  if (udp == NULL || layout->end > bytes) {
    return;
  }
  const __u32 length = spillway_load_be16(udp + 4);
  const __u8* payload = udp + SPILLWAY_UDP_HEADER;
  if (layout->transport + length == layout->end &&
      length >= SPILLWAY_UDP_HEADER + sizeof(struct spillway_packet_header) &&
      payload + sizeof(struct spillway_packet_header) <= end) {
    spillway_read_payload(payload, end, length - SPILLWAY_UDP_HEADER, frame);
  }
}

/* Reads what a port needs to know of a frame. */
static inline void spillway_read_frame(const __u8* data, const __u8* end, __u32 bytes,
                                       struct spillway_layout* layout,
                                       struct spillway_frame* frame) {
  const struct spillway_tag none = {0, 0};
  spillway_read_frame_beside(data, end, bytes, &none, layout, frame);
}

/* ------------------------------------------------------------------ checksums */

/* One's complement sums in memory byte order, two 32-bit words at a time. eBPF uses a cast: its
 * compiler would copy byte by byte, and its machines load from any address. */
static inline __u64 spillway_sum_of_8(const __u8* from) {
#ifdef __bpf__
  typedef __u32 __attribute__((may_alias)) spillway_long_word;
  const spillway_long_word* words = (const spillway_long_word*)from;
#else
  __u32 words[2];
  __builtin_memcpy(words, from, sizeof(words));
#endif
  return (__u64)words[0] + words[1];
}

/* Sum of [from, stop); an odd last byte is padded with zero. */
static inline __u64 spillway_sum(const __u8* from, const __u8* stop) {
  __u64 sum = 0;
  __u32 i;
  for (i = 0; i < SPILLWAY_LONGEST_SUM / 16 && from + 16 <= stop; ++i) {
    sum += spillway_sum_of_8(from) + spillway_sum_of_8(from + 8);
    from += 16;
  }
  for (i = 0; i < 7 && from + 2 <= stop; ++i) {
    sum += spillway_load_word(from);
    from += 2;
  }
  return from + 1 <= stop ? sum + from[0] : sum;
}

static inline __u32 spillway_fold(__u64 sum) {
  sum = (sum & 0xFFFFFFFF) + (sum >> 32);
  sum = (sum & 0xFFFF) + (sum >> 16 & 0xFFFF) + (sum >> 32);
  sum = (sum & 0xFFFF) + (sum >> 16);
  return (__u32)((sum & 0xFFFF) + (sum >> 16)) & 0xFFFF;
}

static inline __u32 spillway_swap16(__u32 value) {
  return (value >> 8 & 0xFF) | (value & 0xFF) << 8;
}

/* Checksum of TCP or UDP from layout->transport to `stop`, with a checksum field of zero. The
 * layout must be this frame's. */
static inline __u32 spillway_transport_checksum(const __u8* data, const __u8* stop,
                                                const struct spillway_layout* layout,
                                                __u32 length) {
  const __u8* ip = data + layout->ip;
  __u64 sum = spillway_sum(data + layout->transport, stop);
  if (layout->is_ipv6 && ip + SPILLWAY_IPV6_HEADER <= stop) {
    sum += spillway_sum_of_8(ip + 8) + spillway_sum_of_8(ip + 16) + spillway_sum_of_8(ip + 24) +
           spillway_sum_of_8(ip + 32);
  } else if (!layout->is_ipv6 && ip + SPILLWAY_IPV4_HEADER <= stop) {
    sum += spillway_sum_of_8(ip + 12);
  }
  sum += (__u32)layout->protocol << 8;
  sum += spillway_swap16(length);
  return ~spillway_fold(sum) & 0xFFFF;
}

/* RFC 1624: replaces a word of the IPv4 header at `ip` and updates the checksum. */
static inline void spillway_replace_ipv4_word(__u8* ip, __u32 offset, __u32 word) {
  const __u32 before = spillway_load_word(ip + offset);
  const __u32 checksum = spillway_load_word(ip + 10);
  spillway_store_word(ip + offset, word);
  spillway_store_word(ip + 10,
                      ~spillway_fold((~checksum & 0xFFFF) + (~before & 0xFFFF) + word) & 0xFFFF);
}

/* ------------------------------------------------------------------ changing */

/* Writes DSCP << 2 | ECN. A wrong IPv4 checksum stays wrong. */
static inline void spillway_set_traffic_class(__u8* data, const __u8* end,
                                              const struct spillway_layout* layout,
                                              __u8 traffic_class) {
  __u8* ip = data + layout->ip;
  if (layout->ip == 0 || ip + SPILLWAY_IPV4_HEADER > end) {
    return;
  }
  if (layout->is_ipv6) {
    ip[0] = (__u8)((ip[0] & 0xF0) | traffic_class >> 4);
    ip[1] = (__u8)((ip[1] & 0x0F) | traffic_class << 4);
  } else if (ip[1] != traffic_class) {
    spillway_replace_ipv4_word(ip, 0, ip[0] | (__u32)traffic_class << 8);
  }
}

/* Makes the IP header agree with the length of a frame that was cut. */
static inline void spillway_set_ip_length(__u8* data, const __u8* end, __u32 bytes,
                                          const struct spillway_layout* layout) {
  __u8* ip = data + layout->ip;
  if (ip + SPILLWAY_IPV4_HEADER > end) {
    return;
  }
  if (layout->is_ipv6) {
    /* A cut within the header leaves a packet without payload. */
    spillway_store_be16(ip + 4, bytes > layout->transport ? bytes - layout->transport : 0);
  } else {
    spillway_replace_ipv4_word(ip, 2, spillway_swap16(bytes - layout->ip));
  }
}

/* Makes the UDP header agree with the length of a frame that was cut. Its checksum covered the lost
 * bytes. Over IPv4 it becomes 0 (none); over IPv6 it is computed anew, and the whole frame must be
 * in [data, end). */
static inline void spillway_set_udp_length(__u8* data, const __u8* end, __u32 bytes,
                                           const struct spillway_layout* layout) {
  __u8* udp = (__u8*)spillway_udp_of(data, end, layout); /* `data` is writable */
  if (udp == NULL) {
    return;
  }
  const __u32 length = bytes - layout->transport;
  spillway_store_be16(udp + 4, length);
  spillway_store_word(udp + 6, 0);
  if (layout->is_ipv6) {
    const __u32 checksum = spillway_transport_checksum(data, end, layout, length);
    spillway_store_word(udp + 6, checksum == 0 ? 0xFFFF : checksum); /* 0 would mean none */
  }
}

/* Corrects the lengths of a frame that was cut to `bytes`, as far as the port's setting `lengths`
 * says. */
static inline void spillway_fix_lengths(__u8* data, const __u8* end, __u32 bytes,
                                        const struct spillway_layout* layout, __u8 lengths) {
  if (layout->ip == 0 || layout->end <= bytes || lengths == SPILLWAY_LENGTHS_STALE) {
    return;
  }
  spillway_set_ip_length(data, end, bytes, layout);
  if (lengths == SPILLWAY_LENGTHS_FIXED) {
    spillway_set_udp_length(data, end, bytes, layout);
  }
}

#endif /* SPILLWAY_DATAPLANE_FRAME_H */
