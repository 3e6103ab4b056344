/* SPDX-License-Identifier: Apache-2.0
 *
 * What the eBPF switch and its user-space side keep in maps: plain C for both. Ports are numbered
 * from 0; SPILLWAY_MAX_PORTS of them share one program.
 */
#ifndef SPILLWAY_DATAPLANE_BPF_SWITCH_MAPS_H
#define SPILLWAY_DATAPLANE_BPF_SWITCH_MAPS_H

#include <linux/bpf.h>

#include "dataplane/station.h"
#include "dataplane/virtual_port.h"
#include "wire/packet.h"

#define SPILLWAY_MAX_PORTS 64
#define SPILLWAY_MAX_STATIONS 8192

/* Of one port; written by user space, which has validated it. */
struct spillway_switch_port {
  struct spillway_port_config config;
  struct spillway_link link;
  __u32 ifindex;
  __u32 calm_bytes;   /* spillway_calm_bytes() of the config */
  __u32 class_handle; /* tc: class MAJOR:1 of the port's queueing discipline is queue 0, and so on
                         up to queue 8; 0: it has no such classes */
};

struct spillway_port_slot {
  struct bpf_spin_lock lock;
  __u32 reserved;
  struct spillway_virtual_port port;
};

/* How a port is named and attached: what user space notes for whoever opens the maps later. */
struct spillway_port_label {
  char name[40];      /* "switch0->host3"; empty: no such port */
  char interface[16]; /* as it was called then; its index is in the port */
  __u8 hook;          /* enum spillway_hook */
  __u8 made_qdisc;    /* the clsact discipline was not there before */
  __u8 stripped_tags; /* kinds of VLAN tags that it took out of frames before: given back */
  __u8 is_veth;       /* XDP: what its far end leaves to a card is not to be seen here */
  __u8 adds;          /* XDP: a program on the way in does what is left of sum packets */
  __u8 reserved[3];
};

enum spillway_hook {
  SPILLWAY_HOOK_XDP = 0,     /* in the driver, and on the way out for what the kernel forwards */
  SPILLWAY_HOOK_GENERIC = 1, /* the same with XDP in the kernel's general part */
  SPILLWAY_HOOK_TC = 2,      /* on the way out */
  SPILLWAY_HOOK_TC_BOTH = 3  /* on the way in and out: forwards as well */
};

/* What one processor counted at one port. */
struct spillway_port_tally {
  struct spillway_port_counters counters;
  __u64 sent_packets;
  __u64 sent_bytes;
  __u64 lost;      /* to gray loss, behind the queue */
  __u64 untouched; /* frames that are not Spillway's, left to the kernel */
  __u64 failed;    /* could not be cut or sent on */
  __u64 same_port; /* came in here and were for somebody behind this very port: dropped */
};

/* For one frame in so many a processor looks everything up anew (processor.h). */
#define SPILLWAY_FRESH_ONE_IN 8

/* What a processor remembers from frame to frame. */
struct spillway_processor {
  __u64 random_state;               /* of spillway_next_random(); never zero */
  struct spillway_station receiver; /* that was looked up last */
  __u32 receiver_port;
  __u32 ifindex; /* of a port whose number was looked up last; 0: none yet */
  __u32 ifindex_port;
  __u32 frames;
  /* Frames that it let into a calm queue and has not told the port of. */
  __u32 untold_port;
  __u32 untold_bytes;
  __u16 untold_frames;
  __u8 untold_queue;
  __u8 reserved[5];
};

/* One frame at one port, for `spillway trace`. */
struct spillway_event {
  __u64 time_ns; /* CLOCK_MONOTONIC */
  __u32 port;
  __u32 bytes;      /* as it came */
  __u32 bytes_left; /* as it went on; 0: it did not */
  __u32 queued;     /* bytes in its queue before it */
  __u8 reason;
  __u8 queue;
  __u8 ecn;
  __u8 is_lost; /* to gray loss */
  __u8 is_data; /* else control */
  __u8 reserved[3];
  struct spillway_packet_header header;
};

#endif /* SPILLWAY_DATAPLANE_BPF_SWITCH_MAPS_H */
