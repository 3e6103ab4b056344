/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the ranks of a job are, as their parts show, and which ranks get which copy of a result.
 * For C, C++ and eBPF.
 *
 * A switch sees at which port a part comes in, from which address, and which ranks are in it: one
 * rank, or those of a rack whose switch has added them. A result for many goes to each port once.
 * It is addressed to one rank there and lists the others to serve further on. Ranks that are
 * unknown, or are behind the result's ingress port, get no copy: they ask the owner (WANT).
 *
 * Callers for one job take turns, except in eBPF, which takes no lock: see sum_jobs.h.
 */
#ifndef SPILLWAY_DATAPLANE_SUM_COPIES_H
#define SPILLWAY_DATAPLANE_SUM_COPIES_H

#include "switch/dataplane/sum_slots.h"

static inline int spillway_has_rank(const __u64* ranks, __u32 rank) {
  return (int)(ranks[rank >> 6 & 1] >> (rank & 63) & 1);
}

static inline void spillway_drop_rank(__u64* ranks, __u32 rank) {
  ranks[rank >> 6 & 1] &= ~(1ULL << (rank & 63));
}

static inline void spillway_put_rank(__u64* ranks, __u32 rank) {
  ranks[rank >> 6 & 1] |= 1ULL << (rank & 63);
}

static inline int spillway_is_same_route(const struct spillway_sum_route* a,
                                         const struct spillway_sum_route* b) {
  return a->shape == b->shape && a->bytes[0] == b->bytes[0] && a->bytes[1] == b->bytes[1] &&
         a->bytes[2] == b->bytes[2] && a->bytes[3] == b->bytes[3];
}

static inline const struct spillway_sum_member* spillway_member(const struct spillway_sum_job* job,
                                                                __u32 rank, __u16 epoch) {
  const struct spillway_sum_member* member = &job->members[rank & (SPILLWAY_SUM_RANKS - 1)];
  return member->name == job->name && member->epoch == epoch ? member : NULL;
}

/* True if a PART shows where its source is. Only path 0 does: its packets are sent from the address
 * that packets for the rank must go to. One in SPILLWAY_SUM_TEACHES_ONE_IN sums is enough,
 * because all ranks of a rack are reached the same way. */
#define SPILLWAY_SUM_TEACHES_ONE_IN 16
static inline int spillway_teaches(const union spillway_sum_image* packet) {
  return packet->fields.common.path == 0 &&
         (packet->fields.level == 0 ||
          packet->fields.common.packet % SPILLWAY_SUM_TEACHES_ONE_IN == 0);
}

/* Learns from a PART as it comes in, before the switch changes it. */
static inline void spillway_learn_member(struct spillway_sum_job* job,
                                         const union spillway_sum_image* packet,
                                         const struct spillway_sum_route* route, __u32 port) {
  const __u32 rank = packet->fields.common.source & (SPILLWAY_SUM_RANKS - 1);
  struct spillway_sum_member* member = &job->members[rank];
  if (!spillway_teaches(packet) || !(packet->fields.ranks[rank >> 6] >> (rank & 63) & 1)) {
    return;
  }
  const int is_known = member->name == job->name && member->epoch == packet->fields.common.epoch &&
                       member->port == port && spillway_is_same_route(&member->route, route);
  if (is_known && ((packet->fields.ranks[0] & ~member->ranks[0]) |
                   (packet->fields.ranks[1] & ~member->ranks[1])) == 0) {
    return;
  }
  member->ranks[0] = packet->fields.ranks[0] | (is_known ? member->ranks[0] : 0);
  member->ranks[1] = packet->fields.ranks[1] | (is_known ? member->ranks[1] : 0);
  member->route = *route;
  member->port = port;
  member->epoch = packet->fields.common.epoch;
  member->name = job->name;
}

/* Progress of a result that goes to many ranks. */
struct spillway_sum_spread {
  __u64 left[SPILLWAY_SUM_RANK_WORDS];
  __u64 unknown[SPILLWAY_SUM_RANK_WORDS];
  __u32 next; /* ranks before it are done */
  __u16 epoch;
  __u16 reserved;
  __u32 port; /* where the result came in */
};

struct spillway_sum_copy {
  __u64 recipients[SPILLWAY_SUM_RANK_WORDS]; /* `rank` is one of them */
  __u64 together[SPILLWAY_SUM_RANK_WORDS];   /* other ranks that this copy may serve */
  __u32 rank;
  __u32 port;
};

static inline void spillway_begin_spread(const union spillway_sum_image* result, __u32 port,
                                         struct spillway_sum_spread* spread) {
  spread->left[0] = result->fields.recipients[0];
  spread->left[1] = result->fields.recipients[1];
  spread->unknown[0] = 0;
  spread->unknown[1] = 0;
  spread->next = 0;
  spread->epoch = result->fields.common.epoch;
  spread->reserved = 0;
  spread->port = port;
}

/* Begins a copy with this rank. Returns 0 if the rank is not left, is unknown, or is where the
 * result came from. */
static inline int spillway_begin_copy(const struct spillway_sum_job* job, __u32 rank,
                                      struct spillway_sum_spread* spread,
                                      struct spillway_sum_copy* copy) {
  if (!spillway_has_rank(spread->left, rank)) {
    return 0;
  }
  const struct spillway_sum_member* member = spillway_member(job, rank, spread->epoch);
  if (member == NULL || member->port == spread->port) {
    return 0;
  }
  spillway_drop_rank(spread->left, rank);
  copy->recipients[0] = 0;
  copy->recipients[1] = 0;
  spillway_put_rank(copy->recipients, rank);
  copy->together[0] = spread->left[0] & member->ranks[0];
  copy->together[1] = spread->left[1] & member->ranks[1];
  copy->rank = rank;
  copy->port = member->port;
  return 1;
}

/* Lets the copy serve this rank, too. Its parts must come with those of the copy's own rank, and it
 * must not be known to be elsewhere. */
static inline void spillway_join_copy(const struct spillway_sum_job* job, __u32 rank,
                                      struct spillway_sum_spread* spread,
                                      struct spillway_sum_copy* copy) {
  if (!spillway_has_rank(copy->together, rank)) {
    return;
  }
  const struct spillway_sum_member* member = spillway_member(job, rank, spread->epoch);
  if (member == NULL || member->port == copy->port) {
    spillway_put_rank(copy->recipients, rank);
    spillway_drop_rank(spread->left, rank);
  }
}

/* After the last copy: adds the ranks that got none to `unknown`. */
static inline void spillway_end_spread(struct spillway_sum_spread* spread) {
  spread->unknown[0] |= spread->left[0];
  spread->unknown[1] |= spread->left[1];
}

/* Makes the next copy. Returns 0 if there are no more; spread->unknown then has the ranks that got
 * none. (eBPF uses loops of its own.) */
static inline int spillway_next_copy(const struct spillway_sum_job* job,
                                     struct spillway_sum_spread* spread,
                                     struct spillway_sum_copy* copy) {
  while (spread->next < SPILLWAY_SUM_RANKS) {
    if (spillway_begin_copy(job, spread->next++, spread, copy)) {
      __u32 rank;
      for (rank = 0; rank < SPILLWAY_SUM_RANKS; ++rank) {
        spillway_join_copy(job, rank, spread, copy);
      }
      return 1;
    }
  }
  spillway_end_spread(spread);
  return 0;
}

/* True if a packet only has to be counted: it asks no slot and teaches nothing. Reads only the part
 * of the header before its ranks. */
static inline int spillway_passes_by(const struct spillway_sum_config* config,
                                     const union spillway_sum_image* packet, int has_words,
                                     struct spillway_sum_decision* decision) {
  const __u8 kind = packet->fields.kind;
  if (kind == SPILLWAY_SUM_RETRANSMIT || kind == SPILLWAY_SUM_WANT) {
    spillway_sum_say(decision, SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_PAST_REPEAT);
    return 1;
  }
  if (kind == SPILLWAY_SUM_PART && has_words && packet->fields.level != config->level &&
      !spillway_teaches(packet)) {
    spillway_sum_say(decision, SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_PAST_LEVEL);
    return 1;
  }
  return 0;
}

/* Writes the header of a copy. A copy for one rank is a plain result. So is any copy after
 * SPILLWAY_SUM_LEVELS switches that copy, the most on a path up and down. Locations come from
 * parts, which may be forged, so copies of copies could otherwise circulate forever. */
static inline void spillway_dress_copy(const struct spillway_sum_copy* copy,
                                       union spillway_sum_image* result) {
  const int is_for_one =
      result->fields.level >= SPILLWAY_SUM_LEVELS ||
      spillway_count_bits(copy->recipients[0]) + spillway_count_bits(copy->recipients[1]) == 1;
  spillway_sum_rise(result);
  result->fields.common.destination = (__u16)copy->rank;
  result->fields.recipients[0] = is_for_one ? 0 : copy->recipients[0];
  result->fields.recipients[1] = is_for_one ? 0 : copy->recipients[1];
  result->fields.marks &= (__u8)~SPILLWAY_SUM_MULTIPLY;
  result->fields.marks |= is_for_one ? 0 : SPILLWAY_SUM_MULTIPLY;
}

/* After the copies: returns whether the result itself is forwarded to its destination, for the
 * ranks that are unknown. It is not if that rank has got a copy or was no recipient. */
static inline int spillway_keep_result(const struct spillway_sum_spread* spread,
                                       union spillway_sum_image* result) {
  if (!spillway_has_rank(spread->unknown,
                         result->fields.common.destination & (SPILLWAY_SUM_RANKS - 1))) {
    return 0;
  }
  result->fields.marks |= SPILLWAY_SUM_MULTIPLY;
  result->fields.recipients[0] = spread->unknown[0];
  result->fields.recipients[1] = spread->unknown[1];
  return 1;
}

#endif /* SPILLWAY_DATAPLANE_SUM_COPIES_H */
