/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a Spillway packet, for C, C++ and eBPF alike. docs/wire.md draws them.
 *
 * A packet is the payload of one UDP datagram. All numbers are little-endian. Every packet opens
 * with spillway_packet_header (32 bytes): who sent it to whom, which message it belongs to, how
 * urgent and how important it is. A data packet goes on with the rest of spillway_data_header (48
 * bytes in all), a check, and bit planes:
 *
 *   | data header 48 | check 8 | head H | tail segment <= 512 | check 8 | tail segment ... |
 *
 * The first check covers the header and the head, which together fit the size to which switches
 * trim; each tail segment has its own. A packet cut anywhere behind its head is therefore good up
 * to the last check that is still whole.
 *
 * Counters are of 64 bits; packets carry the low 16 or 32 of them, and receivers, who know about
 * where a counter stands, rebuild the rest (wire/widen.h).
 *
 * Only this file knows offsets and bit positions. No pointers, no padding, only kernel types.
 */
#ifndef SPILLWAY_WIRE_PACKET_H
#define SPILLWAY_WIRE_PACKET_H

#include <linux/types.h>
#include <stddef.h>

#include "wire/frame_overhead.h"

#define SPILLWAY_WIRE_VERSION 2

/* Packet types. All but data and sums are control packets. */
#define SPILLWAY_TYPE_DATA 1
#define SPILLWAY_TYPE_PROBE 2  /* from a sender: this is the message; say what came of it */
#define SPILLWAY_TYPE_STOP 3   /* from a receiver: it is over, send no more of it */
#define SPILLWAY_TYPE_BITMAP 4 /* from a receiver: what came of a range of its packets */
#define SPILLWAY_TYPE_CREDIT 5 /* from a receiver: how much may be sent, what each path brought */
#define SPILLWAY_TYPE_WAIT 6   /* from either: alive, but this message has not begun here */
#define SPILLWAY_TYPE_LEAVE 7  /* from a rank that takes part no longer: why, and through whom */
#define SPILLWAY_TYPE_SUM 8    /* numbers that switches may add: wire/sum_packet.h */

/* Flags. All other bits are zero in version 2; a reader refuses packets where they are not. */
#define SPILLWAY_FLAG_ENCRYPTED 0x01  /* the scale and the planes are */
#define SPILLWAY_FLAG_LAST 0x02       /* the last packet of its message */
#define SPILLWAY_FLAG_RETRANSMIT 0x04 /* sent before */
#define SPILLWAY_FLAG_REPORT 0x08     /* its sender waits for a report: send one at once */
#define SPILLWAY_FLAGS_KNOWN 0x0F

/* Codecs: bit planes of rotated coordinates, and bytes as they are. A packet of bytes stands for
 * itself: row, slot, rotations and scale are zero, and it is of use only whole. */
#define SPILLWAY_CODEC_PLANES 1
#define SPILLWAY_CODEC_BYTES 2

/* Coordinates come in quanta of 32, so that a plane is a whole number of 4-byte words. */
#define SPILLWAY_QUANTUM 32
#define SPILLWAY_MAX_QUANTA 256 /* in a packet: a row of the default length */
#define SPILLWAY_MAX_PLANES 32
#define SPILLWAY_MIN_ROW_LOG2 8
#define SPILLWAY_MAX_ROW_LOG2 15
#define SPILLWAY_MAX_ROTATIONS 3
#define SPILLWAY_MAX_PACKETS 65536 /* of one message */
#define SPILLWAY_TAIL_SEGMENT 512  /* bytes of planes under one tail check */
#define SPILLWAY_CHECK_SIZE 8

/* The largest UDP payload Spillway sends or accepts, that of a 9,000-byte MTU over IPv4. */
#define SPILLWAY_MAX_PACKET 8972
SPILLWAY_STATIC_ASSERT(SPILLWAY_MAX_PACKET == 9000 - SPILLWAY_IPV4_HEADER - SPILLWAY_UDP_HEADER,
                       "the payload of a 9,000-byte MTU");

struct spillway_packet_header {
  __u8 version_type; /* version << 4 | type */
  __u8 flags;
  __u16 job;
  __u16 epoch;        /* of the job's membership: low bits */
  __u16 source;       /* rank that sent it */
  __u16 destination;  /* rank it is for */
  __u16 piece;        /* which part of the operation's data */
  __u32 operation;    /* its number, low bits: all ranks count alike */
  __u64 signature;    /* of the operation's arguments: ranks that call another one are found out */
  __u8 service;       /* phase << 6 | priority << 3 | importance */
  __u8 path;          /* which of the sender's paths it was sprayed over */
  __u16 packet;       /* index in its message */
  __u32 timestamp_us; /* sender's clock, low bits */
} __attribute__((packed));

struct spillway_data_header {
  struct spillway_packet_header common;
  __u8 code;       /* codec << 4 | log2 of the row's length */
  __u8 planes;     /* rotations << 6 | planes sent, 1..32 */
  __u16 row;       /* index in the message */
  __u8 slot;       /* which of the row's packets */
  __u8 quanta;     /* coordinates / 32 of each of the row's packets but the last; 0: 256 */
  __u8 head_words; /* bytes of planes under the first check / 4 */
  __u8 reserved;
  __u32 number; /* counts the data packets to this peer over this path from 1: low bits */
  __u32 scale;  /* bits of the row's float scale */
} __attribute__((packed));

/* A control packet: this header, a body by type, then one check over all of it. In the common part,
 * operation, signature, piece and the phase name the message together with message_source; source
 * is the rank that sent this packet; packet, priority and importance are zero. */
struct spillway_control_header {
  struct spillway_packet_header common;
  __u16 message_source; /* rank whose message it is about */
  __u16 reserved;
  __u32 sequence;   /* counts the control packets of one rank to another from 1: low bits */
  __u32 generation; /* PROBE: its number; answers: that of the probe they answer, or 0 */
} __attribute__((packed));

struct spillway_probe_body {
  __u32 packets;     /* of the message */
  __u32 important;   /* how many of them must arrive */
  __u32 transmitted; /* data packets of the message sent so far, repeats included */
  __u32 settled;     /* data packets to this peer that have come or are lost: low bits */
  __u8 all_sent;     /* 1: every packet was sent at least once */
  __u8 reserved[3];
} __attribute__((packed));

struct spillway_stop_body {
  __u32 delivered; /* packets */
  __u8 outcome;
  __u8 reserved[3];
} __attribute__((packed));

/* Followed by (count + 7) / 8 bytes, least significant bit first: 1 for a delivered packet. */
struct spillway_bitmap_body {
  __u32 first;
  __u32 count;
  __u32 missing; /* in the whole message */
  __u32 allowed; /* how many may stay missing */
} __attribute__((packed));

/* Followed by path_count reports. */
struct spillway_credit_body {
  __u32 granted; /* data packets that may be sent, counted from the first to this peer: low bits */
  __u8 path_count;
  __u8 answer; /* 1: send something back, to show that you are alive */
  __u16 reserved;
} __attribute__((packed));

/* What came over one path from this peer since it joined: low bits of counters. */
struct spillway_path_report {
  __u8 path;
  __u8 reserved[3];
  __u32 hold_us; /* from the arrival of the latest packet to this report; all ones: or longer */
  __u32 packets;
  __u32 bytes; /* as they were sent, before any trim */
  __u32 marked;
  __u32 trimmed;
  __u32 echo_us;     /* timestamp of the latest packet */
  __u32 echo_number; /* its number */
} __attribute__((packed));

struct spillway_leave_body {
  __u16 culprit; /* rank whose fault it is */
  __u8 cause;
  __u8 reserved;
} __attribute__((packed));

/* Behind it where ranks call different operations; followed by the two texts, without zeros. Where
 * nobody knows the calls, all of it is zero. */
struct spillway_mismatch_body {
  __u64 operation; /* its whole number */
  __u16 ranks[2];
  __u8 bytes[2]; /* of what the first calls and of what the second does: of the text */
  __u8 flags;
  __u8 reserved;
} __attribute__((packed));
#define SPILLWAY_MISMATCH_POINT_TO_POINT 0x01 /* operation numbers a message between the two */
#define SPILLWAY_MISMATCH_FIRST_WHOLE 0x02    /* its text says all; else what a signature tells */
#define SPILLWAY_MISMATCH_SECOND_WHOLE 0x04
#define SPILLWAY_MISMATCH_FLAGS_KNOWN 0x07
#define SPILLWAY_MAX_CALL_TEXT 200 /* bytes; so that a LEAVE fits the smallest MTU */

#define SPILLWAY_MAX_BITMAP_BYTES 1024 /* of one BITMAP packet: 8,192 packets */
#define SPILLWAY_MAX_PATH_REPORTS 16   /* of one CREDIT packet */

#define SPILLWAY_ASSERT_FIELD(type, field, offset) \
  SPILLWAY_STATIC_ASSERT(offsetof(struct type, field) == (offset), #field " moved")

SPILLWAY_ASSERT_FIELD(spillway_packet_header, version_type, 0);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, flags, 1);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, job, 2);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, epoch, 4);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, source, 6);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, destination, 8);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, piece, 10);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, operation, 12);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, signature, 16);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, service, 24);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, path, 25);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, packet, 26);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, timestamp_us, 28);
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_packet_header) == 32, "common header is 32 bytes");

SPILLWAY_ASSERT_FIELD(spillway_data_header, code, 32);
SPILLWAY_ASSERT_FIELD(spillway_data_header, planes, 33);
SPILLWAY_ASSERT_FIELD(spillway_data_header, row, 34);
SPILLWAY_ASSERT_FIELD(spillway_data_header, slot, 36);
SPILLWAY_ASSERT_FIELD(spillway_data_header, quanta, 37);
SPILLWAY_ASSERT_FIELD(spillway_data_header, head_words, 38);
SPILLWAY_ASSERT_FIELD(spillway_data_header, number, 40);
SPILLWAY_ASSERT_FIELD(spillway_data_header, scale, 44);
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_data_header) == 48, "data header is 48 bytes");

SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_control_header) == 44, "control header is 44 bytes");
SPILLWAY_ASSERT_FIELD(spillway_control_header, message_source, 32);
SPILLWAY_ASSERT_FIELD(spillway_control_header, sequence, 36);
SPILLWAY_ASSERT_FIELD(spillway_control_header, generation, 40);
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_probe_body) == 20, "probe body is 20 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_stop_body) == 8, "stop body is 8 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_bitmap_body) == 16, "bitmap body is 16 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_credit_body) == 8, "credit body is 8 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_path_report) == 32, "path report is 32 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_leave_body) == 4, "leave body is 4 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_mismatch_body) == 16, "mismatch body is 16 bytes");

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

/* Bytes of a data packet as it is sent: `planes` bytes of them, of which the first `head` (not
 * more) stand under the first check. Part of a packet of bytes is of no use, so all behind its head
 * is one segment. */
SPILLWAY_CONSTEXPR __u32 spillway_packed_size(__u32 planes, __u32 head, __u8 codec) {
  const __u32 tail = planes - head;
  const __u32 segments = codec == SPILLWAY_CODEC_BYTES
                             ? (tail != 0)
                             : (tail + SPILLWAY_TAIL_SEGMENT - 1) / SPILLWAY_TAIL_SEGMENT;
  return (__u32)sizeof(struct spillway_data_header) + planes + (segments + 1) * SPILLWAY_CHECK_SIZE;
}

#endif /* SPILLWAY_WIRE_PACKET_H */
