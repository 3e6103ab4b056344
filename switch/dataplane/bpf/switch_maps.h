/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps that the eBPF switch shares with its user-space side. Plain C for both. Ports are numbered
 * from 0; up to SPILLWAY_MAX_PORTS share one program.
 */
#ifndef SPILLWAY_DATAPLANE_BPF_SWITCH_MAPS_H
#define SPILLWAY_DATAPLANE_BPF_SWITCH_MAPS_H

#include <linux/bpf.h>

#include "switch/dataplane/frame.h"
#include "switch/dataplane/station.h"
#include "switch/dataplane/virtual_port.h"
#include "wire/packet.h"

#define SPILLWAY_MAX_PORTS 64
#define SPILLWAY_MAX_STATIONS 8192

/* One port. User space writes it after validating the config. */
struct spillway_switch_port {
  struct spillway_port_config config;
  struct spillway_link link;
  __u32 ifindex;
  __u32 calm_bytes;   /* spillway_calm_bytes() of the config */
  __u32 class_handle; /* tc: MAJOR:0 of the port's qdisc; its class MAJOR:(q + 1) is queue q. 0: it
                         has no such classes */
};

struct spillway_port_slot {
  struct bpf_spin_lock lock;
  __u32 reserved;
  struct spillway_virtual_port port;
};

/* A port's name and attachment, kept for processes that open the maps later. */
struct spillway_port_label {
  char name[40];      /* "switch0->host3"; empty: no such port */
  char interface[16]; /* its name when attached; its index is in the port */
  __u8 hook;          /* enum spillway_hook */
  __u8 made_qdisc;    /* the switch added the clsact qdisc */
  __u8 stripped_tags; /* kinds of VLAN tags it stripped before; restored on detach */
  __u8 is_veth;       /* XDP: VLAN tags that its far end leaves to a card are lost here */
  __u8 adds;          /* XDP: spillway_sums is attached on ingress */
  __u8 reserved[3];
};

enum spillway_hook {
  SPILLWAY_HOOK_XDP = 0,     /* driver XDP, and tc egress for what the kernel forwards */
  SPILLWAY_HOOK_GENERIC = 1, /* generic XDP, and tc egress */
  SPILLWAY_HOOK_TC = 2,      /* tc egress only */
  SPILLWAY_HOOK_TC_BOTH = 3  /* tc ingress and egress: forwards as well */
};

/* One CPU's counts at one port. */
struct spillway_port_tally {
  struct spillway_port_counters counters;
  __u64 sent_packets;
  __u64 sent_bytes;
  __u64 lost;      /* to gray loss, after the queue */
  __u64 untouched; /* frames that are not Spillway's, left to the kernel */
  __u64 failed;    /* could not be cut or sent on */
  __u64 same_port; /* dropped: their receiver is behind the port they came in at */
};

/* One frame in this many is looked up anew (processor.h). */
#define SPILLWAY_FRESH_ONE_IN 8

/* The headers of a CPU's current frame. They lie in a map, whose values the verifier does
 * not follow: on the stack it would check all that comes after for every form of headers. */
struct spillway_headers {
  struct spillway_layout layout;
  struct spillway_frame frame;
};

/* A CPU's memory between frames. */
struct spillway_processor {
  __u64 random_state;               /* of spillway_next_random(); never zero */
  struct spillway_station receiver; /* looked up last */
  __u32 receiver_port;
  __u32 ifindex; /* of the port looked up last; 0: none yet */
  __u32 ifindex_port;
  __u32 frames;
  /* Frames admitted to a calm queue that the port has not been told of. */
  __u32 untold_port;
  __u32 untold_bytes;
  __u16 untold_frames;
  __u8 untold_queue;
  __u8 reserved[5];
  struct spillway_headers headers;
};

/* One frame at one port, for `spillway trace`. */
struct spillway_event {
  __u64 time_ns; /* CLOCK_MONOTONIC */
  __u32 port;
  __u32 bytes;      /* on arrival */
  __u32 bytes_left; /* when forwarded; 0: dropped */
  __u32 queued;     /* in its queue before it */
  __u8 reason;
  __u8 queue;
  __u8 ecn;
  __u8 is_lost; /* to gray loss */
  __u8 is_data; /* else control */
  __u8 reserved[3];
  struct spillway_packet_header header;
};

#endif /* SPILLWAY_DATAPLANE_BPF_SWITCH_MAPS_H */
