/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a Spillway packet, for C, C++ and eBPF: headers and bodies of data and control
 * packets, the traffic class in the IP header, and the size of the headers around a packet.
 * docs/wire.md draws them.
 *
 * A packet is the payload of one UDP datagram. All numbers are little-endian. Every packet starts
 * with spillway_packet_header (24 bytes): sender and receiver, the message, its urgency and its
 * importance. A packet of planes continues with the rest of spillway_planes_header (44 bytes in
 * all), a check, and bit planes; a packet of bytes with a check and the bytes. The first packet of
 * bytes of a message has its signature behind the header.
 *
 *   | planes header 44 | check 8 | head H | tail, in one segment or in several | check 8 |
 *   | header 24 or 32  | check 8 | bytes                                       | check 8 |
 *
 * The first check covers header and head, which together fit the size to which switches trim. Each
 * tail segment, or all bytes, has its own check. A packet cut anywhere after its first check is
 * therefore good up to the last check that arrived whole.
 *
 * Counters have 64 bits. Packets carry the low 8, 24 or 32 of them, and receivers, which know
 * roughly where a counter stands, rebuild the rest (wire/data_packet.h).
 *
 * Only this file knows offsets and bit positions. No pointers, no padding, only kernel types.
 */
#ifndef SPILLWAY_WIRE_PACKET_H
#define SPILLWAY_WIRE_PACKET_H

#include <linux/types.h>
#include <stddef.h>

/* C and C++ spell these differently. */
#ifdef __cplusplus
#define SPILLWAY_STATIC_ASSERT(condition, message) static_assert(condition, message)
#define SPILLWAY_CONSTEXPR constexpr
#else
#define SPILLWAY_STATIC_ASSERT(condition, message) _Static_assert(condition, message)
#define SPILLWAY_CONSTEXPR static inline
#endif

#define SPILLWAY_WIRE_VERSION 4

/* Packet types. Planes and bytes are data, PROBE to LEAVE are control packets. */
#define SPILLWAY_TYPE_PLANES 1 /* bit planes of rotated coordinates */
#define SPILLWAY_TYPE_PROBE 2  /* sender: describes the message; asks what arrived */
#define SPILLWAY_TYPE_STOP 3   /* receiver: the message is over, send no more */
#define SPILLWAY_TYPE_BITMAP 4 /* receiver: which packets of a range arrived */
#define SPILLWAY_TYPE_CREDIT 5 /* receiver: how much may be sent, what arrived on each path */
#define SPILLWAY_TYPE_WAIT 6   /* either: alive, but has not begun this message */
#define SPILLWAY_TYPE_LEAVE 7  /* any rank: has left; why, and which rank caused it */
#define SPILLWAY_TYPE_SUM 8    /* numbers that switches may add: wire/sum_packet.h */
#define SPILLWAY_TYPE_BYTES 9  /* unchanged bytes; usable only as a whole */

/* Flags. All other bits are zero in version 4; readers refuse packets that set them. */
#define SPILLWAY_FLAG_ENCRYPTED 0x01  /* scale, planes and bytes are encrypted */
#define SPILLWAY_FLAG_LAST 0x02       /* last packet of its message */
#define SPILLWAY_FLAG_RETRANSMIT 0x04 /* sent before */
#define SPILLWAY_FLAG_REPORT 0x08     /* the sender waits for a report: send one at once */
#define SPILLWAY_FLAG_REQUIRES \
  0x10 /* some packets of its message must arrive: a PROBE says how many */
#define SPILLWAY_FLAGS_KNOWN 0x1F
#define SPILLWAY_FLAG_CODE 0x20 /* only of bytes: floats as code, in fewer packets */

/* The checks behind the head of planes cover one of these. A sender that knows the size to which
 * switches trim uses one check: nothing behind the head survives a trim. */
#define SPILLWAY_TAIL_WHOLE 0    /* one check over the whole tail */
#define SPILLWAY_TAIL_SEGMENTS 1 /* one per SPILLWAY_TAIL_SEGMENT bytes */

/* Coordinates come in quanta of 32, so that a plane is a whole number of 4-byte words. */
#define SPILLWAY_QUANTUM 32
#define SPILLWAY_MAX_QUANTA 256 /* per packet: a row of the default length */
#define SPILLWAY_MAX_PLANES 32
#define SPILLWAY_MIN_ROW_LOG2 8
#define SPILLWAY_MAX_ROW_LOG2 15
#define SPILLWAY_MAX_ROTATIONS 3
#define SPILLWAY_MAX_PACKETS 65536 /* per message */
#define SPILLWAY_TAIL_SEGMENT 512
#define SPILLWAY_CHECK_SIZE 8
#define SPILLWAY_COUNTER_BITS 24 /* operation, number and timestamp */
#define SPILLWAY_MAX_PATH 64     /* stands for the stream; paths of datagrams are below it */

/* The largest UDP payload that Spillway sends or accepts, for a 9,000-byte MTU over IPv4. */
#define SPILLWAY_MAX_PACKET 8972

struct spillway_packet_header {
  __u8 version_type; /* version << 4 | type */
  __u8 flags;
  __u16 job;
  __u16 source;            /* rank that sent it */
  __u16 destination;       /* rank that it is for */
  __u16 piece;             /* which part of the operation's data */
  __u16 packet;            /* index in its message */
  __u32 operation : 24;    /* sequence number, the same at all ranks: low bits */
  __u8 epoch;              /* membership epoch of the job: low bits */
  __u32 number : 24;       /* from 1, low bits. Data: counts packets to this peer over this path.
                            * Control: counts control packets to this peer. Sums: 0 */
  __u8 path;               /* which of the sender's paths it took */
  __u32 timestamp_us : 24; /* sender's clock, low bits */
  __u8 service;            /* phase << 6 | priority << 3 | importance */
} __attribute__((packed));

/* A packet of bytes: this header, without the signature unless common.packet is 0; a check over it;
 * the bytes; a check over them. All packets of a message but the first, which carries the
 * signature, belong to the message that its other fields name. */
struct spillway_bytes_header {
  struct spillway_packet_header common;
  __u64 signature; /* encodes the arguments; reveals ranks with a different call */
} __attribute__((packed));

struct spillway_planes_header {
  struct spillway_packet_header common;
  __u64 signature;
  __u8 row_log2;   /* log2 of the row's length */
  __u8 planes;     /* rotations << 6 | planes sent, 1..32 */
  __u16 row;       /* index in the message */
  __u8 slot;       /* index among the row's packets */
  __u8 quanta;     /* coordinates / 32 in each of the row's packets but the last; 0: 256 */
  __u8 head_words; /* bytes of planes under the first check / 4 */
  __u8 tail;       /* SPILLWAY_TAIL_WHOLE or SPILLWAY_TAIL_SEGMENTS */
  __u32 scale;     /* float bits of the row's scale */
} __attribute__((packed));

/* A control packet: this header, a body by type, then one check over all of it. In the common
 * part, operation, signature, piece and phase together with message_source name the message.
 * source is the rank that sent this packet; packet, priority and importance are zero. */
struct spillway_control_header {
  struct spillway_packet_header common;
  __u64 signature;
  __u16 message_source; /* rank that sends the message's data */
  __u16 reserved;
  __u32 generation; /* PROBE: its number; answers: the number of the answered probe, or 0 */
} __attribute__((packed));

struct spillway_probe_body {
  __u32 packets;     /* in the message */
  __u32 important;   /* how many of them must arrive */
  __u32 transmitted; /* data packets of the message sent so far, retransmits included */
  __u32 settled;     /* data packets to this peer that arrived or are lost: low bits */
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
  __u8 answer; /* 1: send anything back, to show that you are alive */
  __u16 reserved;
} __attribute__((packed));

/* The arrivals over one path from this peer since it joined: low bits of counters. */
struct spillway_path_report {
  __u8 path;
  __u8 reserved[3];
  __u32 hold_us; /* from the latest packet's arrival to this report; all ones: at least that */
  __u32 packets;
  __u32 marked;
  __u64 usable;      /* bit i: packet echo_number - i arrived and is of use */
  __u32 echo_us;     /* timestamp of the latest packet */
  __u32 echo_number; /* number of the latest packet */
} __attribute__((packed));

struct spillway_leave_body {
  __u16 culprit; /* rank at fault */
  __u8 cause;
  __u8 reserved;
} __attribute__((packed));

/* Follows a LEAVE of ranks that call different operations; the two texts, without terminating
 * zeros, come next. All fields are zero if the calls are unknown. */
struct spillway_mismatch_body {
  __u64 operation; /* all 64 bits */
  __u16 ranks[2];
  __u8 bytes[2]; /* lengths of the two texts */
  __u8 flags;
  __u8 reserved;
} __attribute__((packed));
#define SPILLWAY_MISMATCH_POINT_TO_POINT 0x01 /* operation numbers a message between the two */
#define SPILLWAY_MISMATCH_FIRST_WHOLE 0x02    /* whole text; else what its signature encodes */
#define SPILLWAY_MISMATCH_SECOND_WHOLE 0x04
#define SPILLWAY_MISMATCH_FLAGS_KNOWN 0x07
#define SPILLWAY_MAX_CALL_TEXT 200 /* bytes; keeps a LEAVE within the smallest MTU */

#define SPILLWAY_MAX_BITMAP_BYTES 1024 /* in one BITMAP packet: 8,192 packets */
#define SPILLWAY_MAX_PATH_REPORTS 16   /* in one CREDIT packet */

#define SPILLWAY_ASSERT_FIELD(type, field, offset) \
  SPILLWAY_STATIC_ASSERT(offsetof(struct type, field) == (offset), #field " moved")

SPILLWAY_ASSERT_FIELD(spillway_packet_header, version_type, 0);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, flags, 1);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, job, 2);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, source, 4);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, destination, 6);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, piece, 8);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, packet, 10);
/* Bit fields have no offset to ask for: operation, number and timestamp_us fill the gaps. */
SPILLWAY_ASSERT_FIELD(spillway_packet_header, epoch, 15);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, path, 19);
SPILLWAY_ASSERT_FIELD(spillway_packet_header, service, 23);
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_packet_header) == 24, "common header is 24 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_bytes_header) == 32, "bytes header is 32 bytes");

SPILLWAY_ASSERT_FIELD(spillway_planes_header, signature, 24);
SPILLWAY_ASSERT_FIELD(spillway_planes_header, row_log2, 32);
SPILLWAY_ASSERT_FIELD(spillway_planes_header, planes, 33);
SPILLWAY_ASSERT_FIELD(spillway_planes_header, row, 34);
SPILLWAY_ASSERT_FIELD(spillway_planes_header, slot, 36);
SPILLWAY_ASSERT_FIELD(spillway_planes_header, quanta, 37);
SPILLWAY_ASSERT_FIELD(spillway_planes_header, head_words, 38);
SPILLWAY_ASSERT_FIELD(spillway_planes_header, tail, 39);
SPILLWAY_ASSERT_FIELD(spillway_planes_header, scale, 40);
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_planes_header) == 44, "planes header is 44 bytes");

SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_control_header) == 40, "control header is 40 bytes");
SPILLWAY_ASSERT_FIELD(spillway_control_header, signature, 24);
SPILLWAY_ASSERT_FIELD(spillway_control_header, message_source, 32);
SPILLWAY_ASSERT_FIELD(spillway_control_header, generation, 36);
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_probe_body) == 20, "probe body is 20 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_stop_body) == 8, "stop body is 8 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_bitmap_body) == 16, "bitmap body is 16 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_credit_body) == 8, "credit body is 8 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_path_report) == 32, "path report is 32 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_leave_body) == 4, "leave body is 4 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_mismatch_body) == 16, "mismatch body is 16 bytes");

/* ------------------------------------------------------------------ bit fields */
static inline __u8 spillway_version_of(__u8 version_type) {
  return version_type >> 4;
}
static inline __u8 spillway_type_of(__u8 version_type) {
  return version_type & 0x0F;
}
static inline int spillway_is_data_type(__u8 type) {
  return type == SPILLWAY_TYPE_PLANES || type == SPILLWAY_TYPE_BYTES;
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
static inline __u8 spillway_rotations_of(__u8 planes) {
  return planes >> 6;
}
static inline __u8 spillway_planes_of(__u8 planes) {
  return planes & 0x3F;
}

/* Size of a packet with `planes` bytes of planes, of which the first `head` are under the first
 * check; head <= planes. */
SPILLWAY_CONSTEXPR __u32 spillway_packed_size(__u32 planes, __u32 head, __u8 tail) {
  const __u32 behind = planes - head;
  const __u32 segments = tail == SPILLWAY_TAIL_WHOLE
                             ? (behind != 0)
                             : (behind + SPILLWAY_TAIL_SEGMENT - 1) / SPILLWAY_TAIL_SEGMENT;
  return (__u32)sizeof(struct spillway_planes_header) + planes +
         (segments + 1) * SPILLWAY_CHECK_SIZE;
}

/* Bytes of the header of a packet of bytes with this index in its message. */
SPILLWAY_CONSTEXPR __u32 spillway_bytes_header_size(__u16 packet) {
  return packet == 0 ? (__u32)sizeof(struct spillway_bytes_header)
                     : (__u32)sizeof(struct spillway_packet_header);
}

/* Size of a packet of bytes without its bytes. */
SPILLWAY_CONSTEXPR __u32 spillway_bytes_overhead(__u16 packet) {
  return spillway_bytes_header_size(packet) + 2 * SPILLWAY_CHECK_SIZE;
}

/* ------------------------------------------------------------------ traffic classes */
/* How urgency and importance are written into the IP header, so that switches without Spillway act
 * on them too.
 *
 *   DSCP   the queue: priority 7 (front layers) first. Commodity switches pick one of eight queues
 *          by the upper three bits, which keep the order; the lower three bits tell all eight
 *          priorities apart. Control and trimmed packets have their own code points; 48 is SONiC's
 *          default for trimmed packets.
 *   ECN    the drop class: at a long queue, important packets (ECT(0)) are marked, unimportant ones
 *          (Not-ECT) are dropped. */

#define SPILLWAY_PRIORITIES 8

#define SPILLWAY_DSCP_TRIMMED 48
#define SPILLWAY_DSCP_CONTROL 50

#define SPILLWAY_ECN_NOT_ECT 0
#define SPILLWAY_ECN_ECT1 1
#define SPILLWAY_ECN_ECT0 2
#define SPILLWAY_ECN_CE 3

/* From the first importance on, switches mark packets rather than drop them early. Packets of the
 * second must arrive whatever the message's loss bound. */
#define SPILLWAY_IMPORTANCE_MARKED 4
#define SPILLWAY_IMPORTANCE_REQUIRED 7

/* The code point of data with this priority (0..7). */
static inline __u8 spillway_dscp_of_priority(__u8 priority) {
  switch (priority) {
    case 0:
      return 1; /* RFC 8622's lower effort */
    case 1:
      return 9;
    case 2:
      return 11;
    case 3:
      return 17;
    case 4:
      return 25;
    case 5:
      return 27;
    case 6:
      return 33;
    default:
      return 41;
  }
}

/* The priority whose queue serves a code point. Foreign code points go by their upper three
 * bits, as in a commodity switch. */
static inline __u8 spillway_priority_of_dscp(__u8 dscp) {
  switch (dscp >> 3) {
    case 0:
      return 0;
    case 1:
      return dscp >= 11 ? 2 : 1;
    case 2:
      return 3;
    case 3:
      return dscp >= 27 ? 5 : 4;
    case 4:
      return 6;
    default:
      return 7;
  }
}

static inline __u8 spillway_ecn_of_importance(__u8 importance) {
  return importance >= SPILLWAY_IMPORTANCE_MARKED ? SPILLWAY_ECN_ECT0 : SPILLWAY_ECN_NOT_ECT;
}

/* ------------------------------------------------------------------ headers around the payload */
/* What the headers around a payload cost. Only these functions add them up; tests have the sums as
 * literals.
 *
 *   | preamble, FCS, gap 24 | Ethernet 14 | IPv4 20 or IPv6 40 | UDP 8 | payload |
 *   |                                     |<----- datagram: 28 or 48 ----->|  MTU - payload
 *   |                       |<-------------- frame: 42 or 62 ------------->|  frame - payload
 *   |<------------------------ on a link: 66 or 86 ----------------------->|  on link - payload
 *
 * VLAN tags, IP options and IPv6 extension headers are not counted: Spillway sends none. */

#define SPILLWAY_ETHERNET_HEADER 14
#define SPILLWAY_VLAN_TAG 4
#define SPILLWAY_IPV4_HEADER 20
#define SPILLWAY_IPV6_HEADER 40
#define SPILLWAY_UDP_HEADER 8

/* Preamble, frame check sequence and inter-frame gap: what a frame costs a link besides its
 * bytes. */
#define SPILLWAY_WIRE_OVERHEAD 24

SPILLWAY_STATIC_ASSERT(SPILLWAY_MAX_PACKET == 9000 - SPILLWAY_IPV4_HEADER - SPILLWAY_UDP_HEADER,
                       "the payload of a 9,000-byte MTU");

/* IP and UDP headers. */
SPILLWAY_CONSTEXPR __u32 spillway_datagram_overhead(int is_ipv6) {
  return (is_ipv6 ? SPILLWAY_IPV6_HEADER : SPILLWAY_IPV4_HEADER) + SPILLWAY_UDP_HEADER;
}

/* IP, UDP and Ethernet headers. */
SPILLWAY_CONSTEXPR __u32 spillway_frame_overhead(int is_ipv6) {
  return SPILLWAY_ETHERNET_HEADER + spillway_datagram_overhead(is_ipv6);
}

#endif /* SPILLWAY_WIRE_PACKET_H */
