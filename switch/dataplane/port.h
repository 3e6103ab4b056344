/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of one output port of a switch: its config, its queue lengths, a frame that asks for
 * room, and the decision about it. For C, C++ and eBPF. admission.h decides, scheduling.h picks the
 * next queue to serve.
 *
 *   queues 0..7   data, strict priority, 7 first; the lowest `priorities` of them are in use
 *   queue 8       control and trimmed packets, served by share while data waits
 *
 * Four kinds of port:
 *   DROP_TAIL   drops frames that do not fit
 *   ECN         RED over the instantaneous queue: marks ECT frames, drops the others, and drops
 *               frames that do not fit; a step if red_min_bytes equals red_max_bytes
 *   TRIM        as in NDP: cuts frames that do not fit to trim_bytes, for the control queue
 *   SPILLWAY    drops unimportant data early, marks at ecn_bytes, trims frames that do not fit
 * Drop-tail and ECN ports have no control queue: control takes the highest priority in use.
 *
 * No pointers, no padding, only kernel types. One thread per port.
 */
#ifndef SPILLWAY_DATAPLANE_PORT_H
#define SPILLWAY_DATAPLANE_PORT_H

#include <linux/types.h>

#include "wire/packet.h"

#define SPILLWAY_DATA_QUEUES SPILLWAY_PRIORITIES
#define SPILLWAY_CONTROL_QUEUE SPILLWAY_DATA_QUEUES
#define SPILLWAY_QUEUES (SPILLWAY_DATA_QUEUES + 1)

/* No ASIC keeps more than 1,024 bytes; eBPF checksums them in a bounded loop. */
#define SPILLWAY_MAX_TRIM_BYTES 2048

/* Keeps sums and products of sizes within 32 bits. */
#define SPILLWAY_MAX_QUEUE_BYTES (1U << 28)
#define SPILLWAY_MAX_FRAME_BYTES (1U << 16)

enum spillway_port_mode {
  SPILLWAY_PORT_DROP_TAIL = 0,
  SPILLWAY_PORT_ECN = 1,
  SPILLWAY_PORT_TRIM = 2,
  SPILLWAY_PORT_SPILLWAY = 3
};

/* Which length fields a port corrects when it trims a frame. */
enum spillway_lengths {
  SPILLWAY_LENGTHS_FIXED = 0,     /* all match the trimmed frame; sockets receive it */
  SPILLWAY_LENGTHS_UDP_STALE = 1, /* only IP's is right; UDP's is the original one, as in UEC */
  SPILLWAY_LENGTHS_STALE = 2      /* all are the original ones, as on some ASICs */
};

struct spillway_port_config {
  __u32 queue_bytes;         /* limit of each data queue */
  __u32 control_queue_bytes; /* TRIM, SPILLWAY */
  __u32 ecn_bytes;           /* TRIM, SPILLWAY: ECT frames are marked from here on; 0: never */
  __u32 red_min_bytes;       /* ECN: start of the ramp */
  __u32 red_max_bytes;       /* ECN: from here on every frame is marked or dropped */
  __u32 early_drop_bytes;    /* SPILLWAY: importance 0 is dropped from here on; 0: never */
  __u32 trim_bytes;          /* TRIM, SPILLWAY: bytes of the frame that are kept; 0: no trimming */
  __u8 mode;
  __u8 priorities;            /* data queues in use, 1..8 */
  __u8 red_max_percent;       /* ECN: probability at the end of the ramp */
  __u8 control_share_percent; /* of the link, for the control queue while data waits, 1..100 */
  __u8 trimmed_dscp;
  __u8 lengths; /* enum spillway_lengths */
  __u8 reserved[2];
};

struct spillway_port_state {
  __u32 bytes[SPILLWAY_QUEUES];
  __u32 packets[SPILLWAY_QUEUES];
  __u32 occupied;        /* bit per queue that holds a packet */
  __s32 control_balance; /* percent-bytes owed to the control queue, see scheduling.h */
};

#define SPILLWAY_FRAME_TRIMMABLE 0x01 /* a Spillway data packet, or a sum with words */
#define SPILLWAY_FRAME_CONTROL 0x02   /* a Spillway control packet, or a sum without words */
#define SPILLWAY_FRAME_SUM 0x04       /* a sum; set in addition to one of these */

struct spillway_frame {
  __u32 bytes; /* with its Ethernet header; at most SPILLWAY_MAX_FRAME_BYTES */
  __u8 dscp;
  __u8 ecn;
  __u8 importance; /* 0..7; meaningless for frames that are not Spillway's */
  __u8 flags;
};

enum spillway_verdict { SPILLWAY_DROP = 0, SPILLWAY_ENQUEUE = 1 };

/* Why. ADMITTED to DIVERTED go with ENQUEUE, the others with DROP. */
enum spillway_reason {
  SPILLWAY_REASON_ADMITTED = 0,
  SPILLWAY_REASON_MARKED = 1,
  SPILLWAY_REASON_TRIMMED = 2,
  SPILLWAY_REASON_DIVERTED = 3, /* too short to trim: whole into the control queue */
  SPILLWAY_REASON_QUEUE_FULL = 4,
  SPILLWAY_REASON_EARLY = 5,
  SPILLWAY_REASON_RED = 6,
  SPILLWAY_REASON_CONTROL_FULL = 7
};
#define SPILLWAY_REASONS 8

struct spillway_decision {
  __u32 bytes; /* of the frame after the decision */
  __u8 verdict;
  __u8 reason;
  __u8 queue;
  __u8 dscp;
  __u8 ecn;
  __u8 home; /* the queue it belongs to, even if it is diverted: its class */
  __u8 reserved[2];
};

struct spillway_port_counters {
  __u64 packets[SPILLWAY_REASONS];
  __u64 bytes[SPILLWAY_REASONS]; /* of the frames before trimming */
  /* Spillway's data only, by importance. */
  __u64 trimmed[SPILLWAY_PRIORITIES];
  __u64 dropped[SPILLWAY_PRIORITIES];
  __u64 dropped_control;
  /* All packets, by the queue they belong to and by reason. */
  __u64 by_class[SPILLWAY_QUEUES][SPILLWAY_REASONS];
};

SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_port_config) == 36, "config is 36 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_port_state) == 80, "state is 80 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_frame) == 8, "frame is 8 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_decision) == 12, "decision is 12 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_port_counters) == 840, "counters are 840 bytes");

#endif /* SPILLWAY_DATAPLANE_PORT_H */
