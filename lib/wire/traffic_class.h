/* SPDX-License-Identifier: Apache-2.0
 *
 * How urgency and importance are written into the IP header, for C, C++ and eBPF, so that switches
 * without Spillway act on them too.
 *
 *   DSCP   which queue: priority 7 (front layers) first. Commodity switches pick one of eight
 *          queues by the upper three bits, which keep the order; the lower three tell all eight
 *          priorities apart. Control and trimmed packets have their own code points; 48 is
 *          SONiC's default for trimmed packets.
 *   ECN    which drop class: at a long queue, important packets (ECT(0)) are marked, unimportant
 *          ones (Not-ECT) are dropped.
 */
#ifndef SPILLWAY_WIRE_TRAFFIC_CLASS_H
#define SPILLWAY_WIRE_TRAFFIC_CLASS_H

#include <linux/types.h>

#define SPILLWAY_PRIORITIES 8

#define SPILLWAY_DSCP_TRIMMED 48
#define SPILLWAY_DSCP_CONTROL 50

#define SPILLWAY_ECN_NOT_ECT 0
#define SPILLWAY_ECN_ECT1 1
#define SPILLWAY_ECN_ECT0 2
#define SPILLWAY_ECN_CE 3

/* Importance at and above which a packet is marked rather than dropped early, and that of
 * packets that must arrive whatever the message's loss bound. */
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

#endif /* SPILLWAY_WIRE_TRAFFIC_CLASS_H */
