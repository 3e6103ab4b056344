/* SPDX-License-Identifier: Apache-2.0
 *
 * What the headers around a packet cost, for C, C++ and eBPF alike: the one place that adds them
 * up. Tests have the sums as literals.
 *
 *   | preamble, FCS, gap 24 | Ethernet 14 | IPv4 20 or IPv6 40 | UDP 8 | payload |
 *                                         |<--- datagram: 28 or 48 --->|  an MTU less its payload
 *                           |<----------- frame: 42 or 62 ------------>|  a frame less its payload
 *   |<--------------------- on a link: 66 or 86 ---------------------->|  what a link carries more
 *
 * Without VLAN tags, IP options and IPv6 extension headers: Spillway sends none.
 */
#ifndef SPILLWAY_WIRE_FRAME_OVERHEAD_H
#define SPILLWAY_WIRE_FRAME_OVERHEAD_H

#include <linux/types.h>

/* What C and C++ spell differently. */
#ifdef __cplusplus
#define SPILLWAY_STATIC_ASSERT(condition, message) static_assert(condition, message)
#define SPILLWAY_CONSTEXPR constexpr
#else
#define SPILLWAY_STATIC_ASSERT(condition, message) _Static_assert(condition, message)
#define SPILLWAY_CONSTEXPR static inline
#endif

#define SPILLWAY_ETHERNET_HEADER 14
#define SPILLWAY_VLAN_TAG 4
#define SPILLWAY_IPV4_HEADER 20
#define SPILLWAY_IPV6_HEADER 40
#define SPILLWAY_UDP_HEADER 8

/* Preamble, frame check sequence and the gap between frames: what a frame costs a link on top. */
#define SPILLWAY_WIRE_OVERHEAD 24

/* IP and UDP headers. */
SPILLWAY_CONSTEXPR __u32 spillway_datagram_overhead(int is_ipv6) {
  return (is_ipv6 ? SPILLWAY_IPV6_HEADER : SPILLWAY_IPV4_HEADER) + SPILLWAY_UDP_HEADER;
}

/* These and the Ethernet header. */
SPILLWAY_CONSTEXPR __u32 spillway_frame_overhead(int is_ipv6) {
  return SPILLWAY_ETHERNET_HEADER + spillway_datagram_overhead(is_ipv6);
}

#endif /* SPILLWAY_WIRE_FRAME_OVERHEAD_H */
