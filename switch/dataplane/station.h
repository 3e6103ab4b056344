/* SPDX-License-Identifier: Apache-2.0
 *
 * Sender and receiver of a frame, and the one rule on where it must not go. For C, C++ and eBPF, so
 * that all versions of the switch learn and forward alike.
 *
 * A station is a hardware address in one VLAN, that of the outermost tag. The same VLAN number in
 * 802.1Q and in 802.1ad means two different VLANs. A tag that carries only a priority is no VLAN.
 * Tags inside an 802.1ad tag are the customer's and are ignored.
 *
 * A frame whose receiver is behind its ingress port has arrived: a switch drops and counts it
 * (spillway_returns()). It floods group frames, and frames for unknown receivers, to all other
 * ports.
 *
 * Frames as in frame.h. No state.
 */
#ifndef SPILLWAY_DATAPLANE_STATION_H
#define SPILLWAY_DATAPLANE_STATION_H

#include "switch/dataplane/frame.h"

#define SPILLWAY_ADDRESS_BYTES 6
#define SPILLWAY_VLAN_BITS 0x0FFF

/* Flag in spillway_station.vlan: the number is one of 802.1ad. */
#define SPILLWAY_STATION_SERVICE 0x1000

/* No padding: maps compare its bytes. */
struct spillway_station {
  __u8 address[SPILLWAY_ADDRESS_BYTES];
  __u16 vlan; /* 0: none */
};

/* True for multicast and broadcast. */
static inline int spillway_is_group(const __u8* address) {
  return address[0] & 1;
}

static inline __u16 spillway_vlan_of(__u32 type, __u32 value) {
  const __u16 vlan = (__u16)(value & SPILLWAY_VLAN_BITS);
  return vlan != 0 && type == SPILLWAY_ETHERTYPE_SERVICE_VLAN
             ? (__u16)(SPILLWAY_STATION_SERVICE | vlan)
             : vlan;
}

/* The frame must have at least an Ethernet header. */
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

/* Reads the receiver. Returns 0 for a group address, or if the frame is too short. */
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

/* Reads the sender. Returns 0 for a group address, which nobody can have, or if the frame is too
 * short. */
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

/* True if a frame would leave by the port it came in at. Any port numbering will do. */
static inline int spillway_returns(__u32 came_in_at, __u32 leads_to) {
  return came_in_at == leads_to;
}

SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_station) == 8, "station is 8 bytes");

#endif /* SPILLWAY_DATAPLANE_STATION_H */
