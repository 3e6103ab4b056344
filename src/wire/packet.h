/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a Spillway packet, for C, C++ and eBPF alike. docs/wire.md draws them.
 *
 * A packet is the payload of one UDP datagram. All numbers are little-endian. Every packet opens
 * with spillway_packet_header (24 bytes): who sent it, which message it belongs to, how urgent and
 * how important it is. A data packet goes on with the rest of spillway_data_header (36 bytes in
 * all), a check, and bit planes:
 *
 *   | data header 36 | check C | head H | tail segment <= 512 | check C | tail segment ... |
 *
 * C is 4 (CRC32C) or 8 (keyed tag). The first check covers the header and the head, which together
 * fit the size to which the fabric trims; each tail segment has its own. A packet cut anywhere
 * behind its head is therefore good up to the last check that is still whole.
 *
 * Only this file knows offsets and bit positions. No pointers, no padding, nothing but kernel
 * types.
 */
#ifndef SPILLWAY_WIRE_PACKET_H
#define SPILLWAY_WIRE_PACKET_H

#include <linux/types.h>
#include <stddef.h>

#ifdef __cplusplus
#define SPILLWAY_STATIC_ASSERT(condition, message) static_assert(condition, message)
#else
#define SPILLWAY_STATIC_ASSERT(condition, message) _Static_assert(condition, message)
#endif

#define SPILLWAY_WIRE_VERSION 1

/* Packet types; 2 and up are for control packets. */
#define SPILLWAY_TYPE_DATA 1

/* Flags. All other bits are zero in version 1; a reader refuses packets where they are not. */
#define SPILLWAY_FLAG_KEYED 0x01      /* checks are 8-byte keyed tags, not CRC32C */
#define SPILLWAY_FLAG_LAST 0x02       /* the last packet of its message */
#define SPILLWAY_FLAG_RETRANSMIT 0x04 /* sent before */
#define SPILLWAY_FLAGS_KNOWN 0x07

/* Codecs. */
#define SPILLWAY_CODEC_PLANES 1

/* Coordinates come in quanta of 32, so that a plane is a whole number of 4-byte words. */
#define SPILLWAY_QUANTUM 32
#define SPILLWAY_MAX_PLANES 32
#define SPILLWAY_MIN_ROW_LOG2 8
#define SPILLWAY_MAX_ROW_LOG2 15
#define SPILLWAY_MAX_ROTATIONS 3
#define SPILLWAY_MAX_PACKETS 65536 /* of one message */
#define SPILLWAY_TAIL_SEGMENT 512  /* bytes of planes under one tail check */
#define SPILLWAY_CRC_SIZE 4
#define SPILLWAY_TAG_SIZE 8

/* The largest UDP payload Spillway sends or accepts, that of a 9,000-byte MTU over IPv4. */
#define SPILLWAY_MAX_PACKET 8972

struct spillway_packet_header {
  __u8 version_type; /* version << 4 | type */
  __u8 flags;
  __u16 job;
  __u16 epoch;  /* of the job's membership */
  __u16 source; /* rank that sent it */
  __u32 step;
  __u16 bucket;
  __u16 shard;
  __u8 service;       /* phase << 6 | priority << 3 | importance */
  __u8 path;          /* which of the sender's paths it was sprayed over */
  __u16 packet;       /* index in its message */
  __u32 timestamp_us; /* sender's clock, modulo 2^32 */
} __attribute__((packed));

struct spillway_data_header {
  struct spillway_packet_header common;
  __u8 code;       /* codec << 4 | log2 of the row's length */
  __u8 planes;     /* rotations << 6 | planes sent, 1..32 */
  __u16 row;       /* index in the message */
  __u8 slot;       /* which of the row's packets */
  __u8 quanta;     /* coordinates / 32 of each of the row's packets but the last */
  __u8 head_words; /* bytes of planes under the first check / 4 */
  __u8 reserved;   /* zero */
  __u32 scale;     /* bits of the row's float scale */
} __attribute__((packed));

#define SPILLWAY_ASSERT_FIELD(type, field, offset) \
  SPILLWAY_STATIC_ASSERT(offsetof(struct type, field) == (offset), #field " moved")

SPILLWAY_ASSERT_FIELD(spillway_packet_header, version_type, 0);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, flags, 1);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, job, 2);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, epoch, 4);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, source, 6);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, step, 8);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, bucket, 12);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, shard, 14);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, service, 16);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, path, 17);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, packet, 18);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, timestamp_us, 20);
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_packet_header) == 24, "common header is 24 bytes");

SPILLWAY_ASSERT_FIELD(spillway_data_header, code, 24);
SPILLWAY_ASSERT_FIELD(spillway_data_header, planes, 25);
SPILLWAY_ASSERT_FIELD(spillway_data_header, row, 26);
SPILLWAY_ASSERT_FIELD(spillway_data_header, slot, 28);
SPILLWAY_ASSERT_FIELD(spillway_data_header, quanta, 29);
SPILLWAY_ASSERT_FIELD(spillway_data_header, head_words, 30);
SPILLWAY_ASSERT_FIELD(spillway_data_header, reserved, 31);
SPILLWAY_ASSERT_FIELD(spillway_data_header, scale, 32);
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_data_header) == 36, "data header is 36 bytes");

/* The bit fields, taken apart. */
static inline __u8 spillway_version_of(__u8 version_type) {
  return version_type >> 4;
}
static inline __u8 spillway_type_of(__u8 version_type) {
  return version_type & 0x0F;
}
static inline __u8 spillway_phase_of(__u8 service) {
  return service >> 6;
}
static inline __u8 spillway_priority_of(__u8 service) {
  return (service >> 3) & 0x07;
}
static inline __u8 spillway_importance_of(__u8 service) {
  return service & 0x07;
}
static inline __u8 spillway_codec_of(__u8 code) {
  return code >> 4;
}
static inline __u8 spillway_row_log2_of(__u8 code) {
  return code & 0x0F;
}
static inline __u8 spillway_rotations_of(__u8 planes) {
  return planes >> 6;
}
static inline __u8 spillway_planes_of(__u8 planes) {
  return planes & 0x3F;
}

/* Bytes of a check under these flags. */
static inline __u32 spillway_check_size(__u8 flags) {
  return (flags & SPILLWAY_FLAG_KEYED) ? SPILLWAY_TAG_SIZE : SPILLWAY_CRC_SIZE;
}

#endif /* SPILLWAY_WIRE_PACKET_H */
