/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides whether the first bytes of a UDP payload are a Spillway packet's, for C, C++ and eBPF.
 * Hosts accept headers by this rule, and switches use it to tell Spillway's packets from others. It
 * looks at headers alone: verifying the checks after them is the receiver's job.
 *
 * Integers only, no loops, no state.
 */
#ifndef SPILLWAY_WIRE_PACKET_CHECK_H
#define SPILLWAY_WIRE_PACKET_CHECK_H

#include "wire/packet.h"
#include "wire/sum_packet.h"

/* A row whose scale is 0 or NaN was not rotated; all others have a positive, finite scale. */
static inline int spillway_is_valid_scale(__u32 bits, __u8 rotations) {
  const __u32 magnitude = bits & 0x7FFFFFFFU;
  if (magnitude == 0 || magnitude > 0x7F800000U) {
    return rotations == 0;
  }
  return bits < 0x7F800000U && rotations >= 1;
}

/* Coordinates of each of the row's packets but the last. */
static inline __u32 spillway_coordinates_per_slot(const struct spillway_planes_header* header) {
  return ((header->quanta - 1U) % SPILLWAY_MAX_QUANTA + 1U) * SPILLWAY_QUANTUM;
}

/* Size of the packet as it was sent. The header's row and the packet's place in it must be
 * valid. */
static inline __u32 spillway_packet_size(const struct spillway_planes_header* header) {
  const __u32 length = 1U << header->row_log2;
  const __u32 per_slot = spillway_coordinates_per_slot(header);
  const __u32 left = length - header->slot * per_slot;
  const __u32 count = per_slot < left ? per_slot : left;
  return spillway_packed_size(count / 8 * spillway_planes_of(header->planes),
                              header->head_words * 4U, header->tail);
}

/* Validates everything about a row and a packet's place in it that a decoder relies on. */
static inline int spillway_is_valid_span(const struct spillway_planes_header* header) {
  const __u32 row_log2 = header->row_log2;
  const __u32 planes = spillway_planes_of(header->planes);
  if (row_log2 < SPILLWAY_MIN_ROW_LOG2 || row_log2 > SPILLWAY_MAX_ROW_LOG2 || planes == 0 ||
      planes > SPILLWAY_MAX_PLANES || header->head_words == 0) {
    return 0;
  }
  const __u32 length = 1U << row_log2;
  const __u32 per_slot = spillway_coordinates_per_slot(header);
  const __u32 first = header->slot * per_slot;
  if (first >= length) {
    return 0;
  }
  const __u32 count = per_slot < length - first ? per_slot : length - first;
  return header->head_words * 4U <= count / 8 * planes &&
         spillway_packet_size(header) <= SPILLWAY_MAX_PACKET;
}

/* The caller has checked version and type. An encrypted scale can be anything: the receiver checks
 * it again after decryption. */
static inline int spillway_is_valid_planes(const struct spillway_planes_header* header) {
  const int is_open = (header->common.flags & SPILLWAY_FLAG_ENCRYPTED) == 0;
  return (header->common.flags & ~SPILLWAY_FLAGS_KNOWN) == 0 &&
         header->common.path <= SPILLWAY_MAX_PATH && header->tail <= SPILLWAY_TAIL_SEGMENTS &&
         spillway_is_valid_span(header) &&
         (!is_open ||
          spillway_is_valid_scale(header->scale, spillway_rotations_of(header->planes)));
}

/* The same for a packet of bytes. `bytes` is the packet's size, which may have been cut. */
static inline int spillway_is_valid_bytes(const struct spillway_packet_header* header,
                                          __u32 bytes) {
  return (header->flags & ~(SPILLWAY_FLAGS_KNOWN | SPILLWAY_FLAG_CODE)) == 0 &&
         header->path <= SPILLWAY_MAX_PATH && bytes >= spillway_bytes_header_size(header->packet) &&
         bytes <= SPILLWAY_MAX_PACKET;
}

/* The check that a switch makes; wire::open_control_packet() checks more. */
static inline int spillway_is_control(const struct spillway_packet_header* header) {
  const __u8 type = spillway_type_of(header->version_type);
  return type >= SPILLWAY_TYPE_PROBE && type <= SPILLWAY_TYPE_LEAVE &&
         (header->flags & ~SPILLWAY_FLAGS_KNOWN) == 0 &&
         spillway_priority_of(header->service) == 0 && spillway_importance_of(header->service) == 0;
}

/* The check of a switch that only forwards sums, which is as strict as that of a data packet's
 * header. `bytes` is the packet's size. */
static inline int spillway_is_sum(const struct spillway_sum_header* header, __u32 bytes) {
  return bytes >= sizeof(struct spillway_sum_header) &&
         bytes <= spillway_sum_packet_size(header->kind) &&
         (header->common.flags & ~SPILLWAY_FLAGS_KNOWN) == 0 && header->kind != 0 &&
         header->kind < SPILLWAY_SUM_KINDS;
}

#endif /* SPILLWAY_WIRE_PACKET_CHECK_H */
