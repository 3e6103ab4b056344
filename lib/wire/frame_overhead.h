/* SPDX-License-Identifier: Apache-2.0
 *
 * What the headers around a packet cost, for C, C++ and eBPF. Only this file adds them up; tests
 * have the sums as literals.
 *
 *   | preamble, FCS, gap 24 | Ethernet 14 | IPv4 20 or IPv6 40 | UDP 8 | payload |
 *   |                                         |<--- datagram: 28 or 48 --->|  MTU - payload
 *   |                           |<----------- frame: 42 or 62 ------------>|  frame - payload
 *   |<--------------------- on a link: 66 or 86 ---------------------->|  on link - payload
 *
 * VLAN tags, IP options and IPv6 extension headers are not counted: Spillway sends none.
 */
#ifndef SPILLWAY_WIRE_FRAME_OVERHEAD_H
#define SPILLWAY_WIRE_FRAME_OVERHEAD_H

#include <linux/types.h>

/* Spelled differently in C and C++. */
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

/* Preamble, frame check sequence and inter-frame gap: what a frame costs a link besides its
 * bytes. */
#define SPILLWAY_WIRE_OVERHEAD 24

/* IP and UDP headers. */
SPILLWAY_CONSTEXPR __u32 spillway_datagram_overhead(int is_ipv6) {
  return (is_ipv6 ? SPILLWAY_IPV6_HEADER : SPILLWAY_IPV4_HEADER) + SPILLWAY_UDP_HEADER;
}

/* IP, UDP and Ethernet headers. */
SPILLWAY_CONSTEXPR __u32 spillway_frame_overhead(int is_ipv6) {
  return SPILLWAY_ETHERNET_HEADER + spillway_datagram_overhead(is_ipv6);
}

#endif /* SPILLWAY_WIRE_FRAME_OVERHEAD_H */
