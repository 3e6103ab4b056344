/* SPDX-License-Identifier: Apache-2.0
 *
 * Who sends a frame, whom it is for, and the one rule of where it may not go: for C, C++ and eBPF
 * alike, so that every home of the switch learns and forwards alike.
 *
 * A station is a hardware address in one VLAN, that of the outermost tag: networks of the same
 * number, one of 802.1Q and one of 802.1ad, are different ones. A tag without a VLAN (priority
 * only) is no VLAN. What a tag within an 802.1ad tag says is its customer's business.
 *
 * A frame whose receiver is behind the port it came in at has arrived: a switch drops it and counts
 * it (spillway_returns()), and sends what is for all, or for somebody unknown, to all other ports.
 *
 * Frames as in frame.h. No state.
 */
#ifndef SPILLWAY_DATAPLANE_STATION_H
#define SPILLWAY_DATAPLANE_STATION_H

#include "dataplane/frame.h"

#define SPILLWAY_ADDRESS_BYTES 6
#define SPILLWAY_VLAN_BITS 0x0FFF

/* In spillway_station.vlan: a number of 802.1ad. */
#define SPILLWAY_STATION_SERVICE 0x1000

/* Without padding: maps compare its bytes. */
struct spillway_station {
  __u8 address[SPILLWAY_ADDRESS_BYTES];
  __u16 vlan; /* 0: none */
};

/* Broadcast is one of them. */
static inline int spillway_is_group(const __u8* address) {
  return address[0] & 1;
}

static inline __u16 spillway_vlan_of(__u32 type, __u32 value) {
  const __u16 vlan = (__u16)(value & SPILLWAY_VLAN_BITS);
  return vlan != 0 && type == SPILLWAY_ETHERTYPE_SERVICE_VLAN
             ? (__u16)(SPILLWAY_STATION_SERVICE | vlan)
             : vlan;
}

/* The VLAN of a frame of at least an Ethernet header. */
static inline __u16 spillway_vlan_of_frame(const __u8* data, const __u8* end,
                                           const struct spillway_tag* beside) {
  if (beside->type != 0) {
    return spillway_vlan_of(beside->type, beside->value);
  }
  const __u32 type = spillway_load_be16(data + SPILLWAY_ETHERNET_HEADER - 2);
  if (!spillway_is_tag(type) || data + SPILLWAY_ETHERNET_HEADER + SPILLWAY_VLAN_TAG > end) {
    return 0;
  }
  return spillway_vlan_of(type, spillway_load_be16(data + SPILLWAY_ETHERNET_HEADER));
}

/* Whom a frame is for. False: for a group, or it is no frame. */
static inline int spillway_read_receiver(const __u8* data, const __u8* end,
                                         const struct spillway_tag* beside,
                                         struct spillway_station* receiver) {
  if (data + SPILLWAY_ETHERNET_HEADER > end || spillway_is_group(data)) {
    return 0;
  }
  __builtin_memcpy(receiver->address, data, SPILLWAY_ADDRESS_BYTES);
  receiver->vlan = spillway_vlan_of_frame(data, end, beside);
  return 1;
}

/* Who sends it. False: nobody can be called that, or it is no frame. */
static inline int spillway_read_sender(const __u8* data, const __u8* end,
                                       const struct spillway_tag* beside,
                                       struct spillway_station* sender) {
  if (data + SPILLWAY_ETHERNET_HEADER > end || spillway_is_group(data + SPILLWAY_ADDRESS_BYTES)) {
    return 0;
  }
  __builtin_memcpy(sender->address, data + SPILLWAY_ADDRESS_BYTES, SPILLWAY_ADDRESS_BYTES);
  sender->vlan = spillway_vlan_of_frame(data, end, beside);
  return 1;
}

/* Whether a frame would go back where it came from. Ports by whatever number a home gives them. */
static inline int spillway_returns(__u32 came_in_at, __u32 leads_to) {
  return came_in_at == leads_to;
}

SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_station) == 8, "station is 8 bytes");

#endif /* SPILLWAY_DATAPLANE_STATION_H */
