/* SPDX-License-Identifier: Apache-2.0
 *
 * The slots in which a switch adds up sum packets (wire/sum_packet.h), and what happens to a
 * packet. For C, C++ and eBPF. A slot holds what has come of one chunk:
 *
 *   slot                 packet                       what happens
 *   free                 PART                         CLAIM: the chunk takes the slot
 *   BUSY, same chunk     PART, of other ranks         ADD; if whole: EMIT, slot DONE
 *   BUSY, same chunk     PART, all its ranks are in   DUPLICATE: absorbed
 *   DONE, same chunk     PART, all its ranks are in   REEMIT: the sum again, in case it was lost
 *   same chunk           PART, some of its ranks are  OVERLAP: forwarded; nothing can be subtracted
 *   FLUSHED, same chunk  PART                         LATE: forwarded; its owner has already asked
 *   OVER, same chunk     PART                         DUPLICATE: the result has already passed
 *   BUSY, other chunk    PART, may take (policy)      EVICTION: slot and packet are swapped
 *   BUSY, other chunk    PART                         COLLISION: forwarded, the slot ages (policy)
 *   BUSY or DONE, same   FLUSH, owner misses all      FLUSH: returned with the sum; slot FLUSHED
 *   BUSY or DONE, same   FLUSH, owner has some        NOT_HELD: forwarded; slot FLUSHED, of no use
 *   any other            FLUSH                        NOT_HELD: forwarded
 *   same chunk           RESULT                       RESULT: forwarded; slot OVER
 *   any                  RETRANSMIT, WANT             forwarded, touch no slot
 *
 * EMPTY, DONE, FLUSHED and OVER slots are free for other chunks. Their content only helps to
 * repair losses, and a chunk without a slot costs more than a retransmission. So a slot is held
 * only until its sum has left. Any chunk can take a BUSY slot after a lease.
 *
 * Policies differ in which slots a chunk may use, and when it may take a BUSY one:
 *   STATIC       a pool of slots per job, used by chunks in turn (SwitchML)
 *   FIRST_COME   all slots for all jobs, by hash; no preemption (ATP)
 *   PREEMPTIVE   by hash; more urgent packets preempt. A slot's urgency halves with every packet
 *                that it turns away, so that none is held forever (ESA). It is the claimer's
 *                urgency: if additions renewed it, slots would never age. A retransmitted part does
 *                not take a slot that waits for only one rank.
 *
 * Packets that leave a slot, or find it taken, go one level up: they have been through this one.
 *
 * Use: spillway_screen_sum(). If that asks for a slot, spillway_place_sum(). Then, with one caller
 * per slot at a time (eBPF holds its lock), spillway_decide_sum() and spillway_move_words(). Then,
 * without the lock, spillway_account_sum(). No loops except over words, no pointers in state.
 * Nothing in a packet is trusted: forged fields cost time at most, and tags (wire/sum_datagram.h)
 * expose sums that contain forged parts.
 */
#ifndef SPILLWAY_DATAPLANE_SUM_SLOTS_H
#define SPILLWAY_DATAPLANE_SUM_SLOTS_H

#include "switch/dataplane/sum_jobs.h"
#include "switch/dataplane/sum_words.h"

#define SPILLWAY_SUM_MAX_SLOTS (1U << 20)
#define SPILLWAY_SUM_NO_SLOT 0xFFFFFFFFU
#define SPILLWAY_SUM_LEASE_US 100000 /* default */

enum spillway_sum_policy {
  SPILLWAY_SUM_STATIC = 0,
  SPILLWAY_SUM_FIRST_COME = 1,
  SPILLWAY_SUM_PREEMPTIVE = 2
};
#define SPILLWAY_SUM_POLICIES 3

struct spillway_sum_config {
  __u32 slots;    /* 0: nothing is added */
  __u32 lease_us; /* after which any chunk may take the slot */
  __u32 pools;    /* STATIC: equal pools for jobs without their own, by job number; 0: none */
  __u8 policy;
  __u8 level; /* of the packets that are added: below SPILLWAY_SUM_LEVELS */
  __u8 reserved[2];
};

/* Identifies a chunk of a job. */
struct spillway_sum_key {
  __u64 words[2]; /* job | epoch | operation, owner | piece | chunk */
};

enum spillway_sum_state {
  SPILLWAY_SUM_EMPTY = 0,
  SPILLWAY_SUM_BUSY = 1,
  SPILLWAY_SUM_DONE = 2,    /* its sum has left and is kept for retransmission */
  SPILLWAY_SUM_FLUSHED = 3, /* its owner has asked for its content */
  SPILLWAY_SUM_OVER = 4     /* its result has passed */
};

struct spillway_sum_slot {
  struct spillway_sum_key key;
  __u64 claimed_ns;
  __u8 state;
  __u8 urgency; /* halves as the slot ages */
  __u8 row;     /* of its job */
  __u8 reserved[5];
  union spillway_sum_image header; /* the claimer's; ranks, tag and marks are the sum's */
  struct spillway_sum_route route; /* the claimer's */
  __u64 words[SPILLWAY_SUM_WORDS];
};

enum spillway_sum_action {
  SPILLWAY_SUM_FORWARD = 0,
  SPILLWAY_SUM_ABSORB = 1, /* the packet ends here */
  SPILLWAY_SUM_EMIT = 2,   /* forward as a sum, to the owner */
  SPILLWAY_SUM_SWAP = 3,   /* forward what was in the slot, by its route */
  SPILLWAY_SUM_TURN = 4,   /* return to the sender, longer, with what was in the slot */
  SPILLWAY_SUM_TO_MANY = 5 /* RESULT: copy to all recipients (sum_copies.h) */
};

/* The outcome of a packet. Each packet counts as exactly one of these. */
enum spillway_sum_outcome {
  SPILLWAY_SUM_DID_CLAIM = 0,
  SPILLWAY_SUM_DID_ADD = 1,
  SPILLWAY_SUM_DID_EMIT = 2,
  SPILLWAY_SUM_DID_DUPLICATE = 3,
  SPILLWAY_SUM_DID_REEMIT = 4,
  SPILLWAY_SUM_DID_COLLISION = 5,
  SPILLWAY_SUM_DID_EVICTION = 6, /* it took a slot by being more urgent */
  SPILLWAY_SUM_DID_EXPIRED = 7,  /* it took a slot whose lease was over */
  SPILLWAY_SUM_DID_OVERLAP = 8,
  SPILLWAY_SUM_DID_LATE = 9,
  SPILLWAY_SUM_DID_FLUSH = 10,
  SPILLWAY_SUM_DID_NOT_HELD = 11,
  SPILLWAY_SUM_DID_RESULT = 12,
  SPILLWAY_SUM_DID_STALE = 13, /* not of the current epoch: forwarded */
  /* Forwarded without asking a slot, and why. */
  SPILLWAY_SUM_PAST_ALONE = 14,   /* whole by itself */
  SPILLWAY_SUM_PAST_REPEAT = 15,  /* RETRANSMIT or WANT */
  SPILLWAY_SUM_PAST_LEVEL = 16,   /* of another level */
  SPILLWAY_SUM_PAST_CUT = 17,     /* trimmed */
  SPILLWAY_SUM_PAST_IPV6 = 18,    /* or anything else that cannot be changed in place */
  SPILLWAY_SUM_PAST_LIMIT = 19,   /* its job is at its limit of slots, or has none */
  SPILLWAY_SUM_PAST_JOBS = 20,    /* there are too many jobs */
  SPILLWAY_SUM_PAST_INVALID = 21, /* names no rank */
  SPILLWAY_SUM_PAST_NO_SLOTS = 22 /* nothing is added here */
};
#define SPILLWAY_SUM_OUTCOMES 23

/* Counters of one job, or of all jobs. */
struct spillway_sum_counters {
  __u64 outcomes[SPILLWAY_SUM_OUTCOMES];
  __u64 lost_slots; /* its slots that other chunks took */
  __u64 copies;     /* of results */
  __u64 unknown;    /* recipients of results whose location was unknown */
};

struct spillway_sum_decision {
  __u8 action;
  __u8 outcome;
  __u8 move;       /* enum spillway_sum_move, of the slot's and the packet's words */
  __u8 is_changed; /* the packet's header must be written back */
  __u8 takes;      /* the packet's job gains a slot */
  __u8 frees;      /* the job in `row` loses a slot */
  __u8 row;
  __u8 reserved;
};

/* ------------------------------------------------------------------ keys, ranks, places */

static inline struct spillway_sum_key spillway_sum_key_of(const union spillway_sum_image* header) {
  const struct spillway_packet_header* common = &header->fields.common;
  struct spillway_sum_key key;
  key.words[0] = (__u64)common->job << 48 | (__u64)common->epoch << 32 | common->operation;
  key.words[1] = (__u64)header->fields.owner << 32 | (__u64)common->piece << 16 | common->packet;
  return key;
}

static inline __u16 spillway_sum_job_of(const struct spillway_sum_key* key) {
  return (__u16)(key->words[0] >> 48);
}

static inline __u32 spillway_sum_hash(__u64 first, __u64 second) {
  __u64 hash = first * 0x9E3779B97F4A7C15ULL ^ second * 0xC2B2AE3D27D4EB4FULL;
  hash ^= hash >> 29;
  hash *= 0xBF58476D1CE4E5B9ULL;
  return (__u32)(hash >> 32);
}

/* A hash as a number below `count`. */
static inline __u32 spillway_sum_below(__u32 hash, __u32 count) {
  return (__u32)((__u64)hash * count >> 32);
}

/* In a pool, chunks use slots in turn, and pieces begin anywhere. If a job's window fits its pool,
 * its chunks collide only where pieces overlap. */
static inline __u32 spillway_sum_pool_slot(const struct spillway_sum_config* config,
                                           const struct spillway_sum_job* job,
                                           const struct spillway_sum_key* key) {
  __u32 first = job->pool_first;
  __u32 count = job->pool_count;
  if (count == 0 && config->pools != 0) {
    count = config->slots / config->pools;
    first = spillway_sum_job_of(key) % config->pools * count;
  }
  if (count == 0) {
    return SPILLWAY_SUM_NO_SLOT;
  }
  const __u32 start = spillway_sum_hash(key->words[0], key->words[1] >> 16);
  const __u32 slot = first + (spillway_sum_below(start, count) + (__u16)key->words[1]) % count;
  return slot < config->slots ? slot : SPILLWAY_SUM_NO_SLOT;
}

/* The only slot that a chunk may use; SPILLWAY_SUM_NO_SLOT if its job has none. */
static inline __u32 spillway_sum_slot_of(const struct spillway_sum_config* config,
                                         const struct spillway_sum_job* job,
                                         const struct spillway_sum_key* key) {
  if (config->policy == SPILLWAY_SUM_STATIC) {
    return spillway_sum_pool_slot(config, job, key);
  }
  return spillway_sum_below(spillway_sum_hash(key->words[0], key->words[1]), config->slots);
}

static inline __u32 spillway_count_bits(__u64 bits) {
  bits -= bits >> 1 & 0x5555555555555555ULL;
  bits = (bits & 0x3333333333333333ULL) + (bits >> 2 & 0x3333333333333333ULL);
  bits = (bits + (bits >> 4)) & 0x0F0F0F0F0F0F0F0FULL;
  return (__u32)(bits * 0x0101010101010101ULL >> 56);
}

static inline __u32 spillway_sum_count_ranks(const union spillway_sum_image* header) {
  return spillway_count_bits(header->fields.ranks[0]) +
         spillway_count_bits(header->fields.ranks[1]);
}

static inline int spillway_sum_shares_ranks(const union spillway_sum_image* a,
                                            const union spillway_sum_image* b) {
  return ((a->fields.ranks[0] & b->fields.ranks[0]) | (a->fields.ranks[1] & b->fields.ranks[1])) !=
         0;
}

/* Whether all ranks of `inner` are in `outer`. */
static inline int spillway_sum_has_ranks(const union spillway_sum_image* outer,
                                         const union spillway_sum_image* inner) {
  return ((inner->fields.ranks[0] & ~outer->fields.ranks[0]) |
          (inner->fields.ranks[1] & ~outer->fields.ranks[1])) == 0;
}

/* Number of ranks that make a sum whole at this level; 0: it never is. */
static inline __u32 spillway_sum_need(const struct spillway_sum_config* config,
                                      const union spillway_sum_image* header) {
  return config->level == 0 ? header->fields.need[0] : header->fields.need[1];
}

/* More ranks than needed are enough, too, or the sum would wait forever. */
static inline int spillway_sum_is_whole(__u32 need, __u32 ranks) {
  return need != 0 && ranks >= need;
}

/* ------------------------------------------------------------------ deciding */

static inline void spillway_sum_say(struct spillway_sum_decision* decision, __u8 action,
                                    __u8 outcome) {
  decision->action = action;
  decision->outcome = outcome;
  decision->move = SPILLWAY_SUM_MOVE_NONE;
  decision->is_changed = 0;
  decision->takes = 0;
  decision->frees = 0;
  decision->row = 0;
  decision->reserved = 0;
}

static inline void spillway_sum_rise(union spillway_sum_image* header) {
  if (header->fields.level < SPILLWAY_SUM_LEVELS) {
    header->fields.level += 1;
  }
}

/* Forwards a packet of this level without adding it. */
static inline void spillway_sum_pass_on(union spillway_sum_image* packet, __u8 mark, __u8 outcome,
                                        struct spillway_sum_decision* decision) {
  spillway_sum_say(decision, SPILLWAY_SUM_FORWARD, outcome);
  packet->fields.marks |= mark;
  spillway_sum_rise(packet);
  decision->is_changed = 1;
}

/* Decides about packets that need no slot. Returns 1 if a slot must be asked. `has_words`: the
 * packet was not trimmed. The header must be valid (spillway_is_valid_sum()). */
static inline int spillway_screen_sum(const struct spillway_sum_config* config,
                                      const union spillway_sum_image* packet, int has_words,
                                      struct spillway_sum_decision* decision) {
  __u8 outcome;
  if (config->slots == 0) {
    outcome = SPILLWAY_SUM_PAST_NO_SLOTS;
  } else if (packet->fields.kind == SPILLWAY_SUM_RETRANSMIT ||
             packet->fields.kind == SPILLWAY_SUM_WANT) {
    outcome = SPILLWAY_SUM_PAST_REPEAT;
  } else if (packet->fields.kind != SPILLWAY_SUM_FLUSH && !has_words) {
    outcome = SPILLWAY_SUM_PAST_CUT;
  } else if (packet->fields.kind == SPILLWAY_SUM_PART && packet->fields.level != config->level) {
    outcome = SPILLWAY_SUM_PAST_LEVEL;
  } else if (packet->fields.kind == SPILLWAY_SUM_PART &&
             (packet->fields.ranks[0] | packet->fields.ranks[1]) == 0) {
    outcome = SPILLWAY_SUM_PAST_INVALID;
  } else {
    return 1;
  }
  spillway_sum_say(decision, SPILLWAY_SUM_FORWARD, outcome);
  return 0;
}

/* Finds the slot for a packet that came in at `port`. Returns 0 if the packet is a part of an epoch
 * that is not current, or if its job has no slots. */
static inline int spillway_place_sum(const struct spillway_sum_config* config,
                                     struct spillway_sum_job* job,
                                     const struct spillway_sum_key* key,
                                     const union spillway_sum_image* packet, __u64 now_ns,
                                     __u32 port, __u32* slot,
                                     struct spillway_sum_decision* decision) {
  if (packet->fields.kind == SPILLWAY_SUM_PART &&
      spillway_is_other_epoch(job, packet->fields.common.epoch, now_ns, config->lease_us * 1000ULL,
                              port)) {
    spillway_sum_say(decision, SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_DID_STALE);
    return 0;
  }
  *slot = spillway_sum_slot_of(config, job, key);
  if (*slot == SPILLWAY_SUM_NO_SLOT) {
    spillway_sum_say(decision, SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_PAST_LIMIT);
    return 0;
  }
  return 1;
}

static inline int spillway_is_same_chunk(const struct spillway_sum_slot* slot,
                                         const struct spillway_sum_key* key,
                                         const union spillway_sum_image* packet) {
  return slot->state != SPILLWAY_SUM_EMPTY && slot->key.words[0] == key->words[0] &&
         slot->key.words[1] == key->words[1] &&
         slot->header.fields.signature == packet->fields.signature;
}

static inline int spillway_is_expired(const struct spillway_sum_config* config,
                                      const struct spillway_sum_slot* slot, __u64 now_ns) {
  return now_ns > slot->claimed_ns && now_ns - slot->claimed_ns > config->lease_us * 1000ULL;
}

static inline void spillway_leave_slot(struct spillway_sum_slot* slot, __u8 state,
                                       struct spillway_sum_decision* decision) {
  if (slot->state == SPILLWAY_SUM_BUSY) {
    decision->frees = 1;
    decision->row = slot->row;
  }
  slot->state = state;
}

/* Turns `packet`, which has the header of one of the parts, into the slot's sum. */
static inline void spillway_dress_sum(const union spillway_sum_image* sum, __u8 marks,
                                      union spillway_sum_image* packet) {
  packet->fields.kind = SPILLWAY_SUM_PART;
  packet->fields.marks =
      ((packet->fields.marks | sum->fields.marks) & SPILLWAY_SUM_CONGESTED) | marks;
  packet->fields.ranks[0] = sum->fields.ranks[0];
  packet->fields.ranks[1] = sum->fields.ranks[1];
  packet->fields.tag = sum->fields.tag;
  spillway_sum_rise(packet);
}

static inline void spillway_claim_slot(const struct spillway_sum_job* job,
                                       const struct spillway_sum_key* key, __u64 now_ns,
                                       struct spillway_sum_slot* slot) {
  slot->key = *key;
  slot->claimed_ns = now_ns;
  slot->state = SPILLWAY_SUM_BUSY;
  slot->urgency = slot->header.fields.urgency;
  slot->row = (__u8)job->row;
}

/* Adds a part whose ranks are not in the slot yet. */
static inline void spillway_add_part(const struct spillway_sum_config* config,
                                     struct spillway_sum_slot* slot,
                                     union spillway_sum_image* packet,
                                     struct spillway_sum_decision* decision) {
  union spillway_sum_image* sum = &slot->header;
  sum->fields.ranks[0] |= packet->fields.ranks[0];
  sum->fields.ranks[1] |= packet->fields.ranks[1];
  sum->fields.tag = spillway_add_tags(sum->fields.tag, packet->fields.tag);
  sum->fields.marks |= packet->fields.marks & SPILLWAY_SUM_CONGESTED;
  if (!spillway_sum_is_whole(spillway_sum_need(config, sum), spillway_sum_count_ranks(sum))) {
    spillway_sum_say(decision, SPILLWAY_SUM_ABSORB, SPILLWAY_SUM_DID_ADD);
    decision->move = SPILLWAY_SUM_MOVE_ADD;
    return;
  }
  spillway_sum_say(decision, SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_EMIT);
  decision->move = SPILLWAY_SUM_MOVE_EMIT;
  decision->is_changed = 1;
  spillway_dress_sum(sum, SPILLWAY_SUM_ADDED, packet);
  spillway_leave_slot(slot, SPILLWAY_SUM_DONE, decision);
}

/* A part whose ranks are all in the slot. */
static inline void spillway_repeat_part(struct spillway_sum_slot* slot,
                                        union spillway_sum_image* packet,
                                        struct spillway_sum_decision* decision) {
  if (slot->state != SPILLWAY_SUM_DONE) {
    spillway_sum_say(decision, SPILLWAY_SUM_ABSORB, SPILLWAY_SUM_DID_DUPLICATE);
    return;
  }
  spillway_sum_say(decision, SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_REEMIT);
  decision->move = SPILLWAY_SUM_MOVE_READ;
  decision->is_changed = 1;
  spillway_dress_sum(&slot->header, SPILLWAY_SUM_ADDED, packet);
}

static inline void spillway_decide_same(const struct spillway_sum_config* config,
                                        struct spillway_sum_slot* slot,
                                        union spillway_sum_image* packet,
                                        struct spillway_sum_decision* decision) {
  const union spillway_sum_image* sum = &slot->header;
  if (slot->state == SPILLWAY_SUM_FLUSHED) {
    spillway_sum_pass_on(packet, 0, SPILLWAY_SUM_DID_LATE, decision);
  } else if (slot->state == SPILLWAY_SUM_OVER) {
    spillway_sum_say(decision, SPILLWAY_SUM_ABSORB, SPILLWAY_SUM_DID_DUPLICATE);
  } else if (spillway_sum_has_ranks(sum, packet)) {
    spillway_repeat_part(slot, packet, decision);
  } else if (spillway_sum_shares_ranks(sum, packet)) {
    spillway_sum_pass_on(packet, SPILLWAY_SUM_OVERLAP, SPILLWAY_SUM_DID_OVERLAP, decision);
  } else if (slot->state == SPILLWAY_SUM_DONE) {
    /* Its sum has left without this part and must stay as it left. */
    spillway_sum_pass_on(packet, 0, SPILLWAY_SUM_DID_LATE, decision);
  } else {
    spillway_add_part(config, slot, packet, decision);
  }
}

/* The part replaces what the slot holds, which is no longer needed. */
static inline void spillway_claim(const struct spillway_sum_job* job,
                                  const struct spillway_sum_key* key, __u64 now_ns,
                                  struct spillway_sum_slot* slot,
                                  const union spillway_sum_image* packet,
                                  const struct spillway_sum_route* route,
                                  struct spillway_sum_decision* decision) {
  spillway_sum_say(decision, SPILLWAY_SUM_ABSORB, SPILLWAY_SUM_DID_CLAIM);
  decision->move = SPILLWAY_SUM_MOVE_CLAIM;
  decision->takes = 1;
  slot->header = *packet;
  slot->route = *route;
  spillway_claim_slot(job, key, now_ns, slot);
}

static inline void spillway_swap_routes(struct spillway_sum_route* a,
                                        struct spillway_sum_route* b) {
  const __u8 traffic_class = a->traffic_class; /* the shape is the same */
  __u32 i;
  a->traffic_class = b->traffic_class;
  b->traffic_class = traffic_class;
  for (i = 0; i < sizeof(a->bytes) / sizeof(a->bytes[0]); ++i) {
    const __u64 word = a->bytes[i];
    a->bytes[i] = b->bytes[i];
    b->bytes[i] = word;
  }
}

/* Swaps the contents of slot and packet. */
static inline void spillway_evict(const struct spillway_sum_job* job,
                                  const struct spillway_sum_key* key, __u64 now_ns, __u8 outcome,
                                  struct spillway_sum_slot* slot, union spillway_sum_image* packet,
                                  struct spillway_sum_route* route,
                                  struct spillway_sum_decision* decision) {
  spillway_sum_say(decision, SPILLWAY_SUM_SWAP, outcome);
  decision->move = SPILLWAY_SUM_MOVE_SWAP;
  decision->is_changed = 1;
  decision->takes = 1;
  spillway_leave_slot(slot, SPILLWAY_SUM_EMPTY, decision);
  spillway_swap_sum_headers(&slot->header, packet);
  spillway_swap_routes(&slot->route, route);
  spillway_claim_slot(job, key, now_ns, slot);
  spillway_dress_sum(packet, SPILLWAY_SUM_ADDED | SPILLWAY_SUM_PARTIAL | SPILLWAY_SUM_EVICTED,
                     packet);
}

/* True if a part takes a BUSY slot from another chunk because it is more urgent. */
static inline int spillway_preempts(const struct spillway_sum_config* config,
                                    const struct spillway_sum_slot* slot,
                                    const union spillway_sum_image* packet) {
  const union spillway_sum_image* sum = &slot->header;
  if (config->policy != SPILLWAY_SUM_PREEMPTIVE || packet->fields.urgency <= slot->urgency) {
    return 0;
  }
  return (packet->fields.common.flags & SPILLWAY_FLAG_RETRANSMIT) == 0 ||
         !spillway_sum_is_whole(spillway_sum_need(config, sum), spillway_sum_count_ranks(sum) + 1);
}

static inline void spillway_decide_other(const struct spillway_sum_config* config,
                                         const struct spillway_sum_job* job,
                                         const struct spillway_sum_key* key, __u64 now_ns,
                                         struct spillway_sum_slot* slot,
                                         union spillway_sum_image* packet,
                                         struct spillway_sum_route* route,
                                         struct spillway_sum_decision* decision) {
  const int is_within = job->limit == 0 || job->held < job->limit;
  const int fits = is_within && slot->route.shape == route->shape;
  if (slot->state != SPILLWAY_SUM_BUSY && is_within) {
    spillway_claim(job, key, now_ns, slot, packet, route, decision);
  } else if (!is_within) {
    spillway_sum_pass_on(packet, 0, SPILLWAY_SUM_PAST_LIMIT, decision);
  } else if (fits && spillway_is_expired(config, slot, now_ns)) {
    spillway_evict(job, key, now_ns, SPILLWAY_SUM_DID_EXPIRED, slot, packet, route, decision);
  } else if (fits && spillway_preempts(config, slot, packet)) {
    spillway_evict(job, key, now_ns, SPILLWAY_SUM_DID_EVICTION, slot, packet, route, decision);
  } else {
    if (config->policy == SPILLWAY_SUM_PREEMPTIVE) {
      slot->urgency >>= 1;
    }
    spillway_sum_pass_on(packet, SPILLWAY_SUM_COLLISION, SPILLWAY_SUM_DID_COLLISION, decision);
  }
}

static inline void spillway_decide_part(const struct spillway_sum_config* config,
                                        const struct spillway_sum_job* job,
                                        const struct spillway_sum_key* key, __u64 now_ns,
                                        struct spillway_sum_slot* slot,
                                        union spillway_sum_image* packet,
                                        struct spillway_sum_route* route,
                                        struct spillway_sum_decision* decision) {
  const union spillway_sum_image* part = packet;
  const int is_same = spillway_is_same_chunk(slot, key, part);
  /* Operation numbers are reused after a while. */
  const int is_forgotten =
      slot->state != SPILLWAY_SUM_BUSY && spillway_is_expired(config, slot, now_ns);
  if (is_same && !is_forgotten) {
    spillway_decide_same(config, slot, packet, decision);
  } else if (spillway_sum_is_whole(spillway_sum_need(config, part),
                                   spillway_sum_count_ranks(part))) {
    spillway_sum_pass_on(packet, 0, SPILLWAY_SUM_PAST_ALONE, decision);
  } else {
    spillway_decide_other(config, job, key, now_ns, slot, packet, route, decision);
  }
}

/* The owner asks for a sum of ranks that it misses. A sum that contains a rank it already has is
 * of no use to it. After TURN the packet is the sum, from the packet's destination back to its
 * source. */
static inline void spillway_decide_flush(const struct spillway_sum_key* key,
                                         struct spillway_sum_slot* slot,
                                         union spillway_sum_image* packet,
                                         struct spillway_sum_decision* decision) {
  const int is_same = spillway_is_same_chunk(slot, key, packet);
  const int is_held =
      is_same && (slot->state == SPILLWAY_SUM_BUSY || slot->state == SPILLWAY_SUM_DONE);
  if (!is_held || !spillway_sum_has_ranks(packet, &slot->header)) {
    spillway_sum_say(decision, SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_DID_NOT_HELD);
    packet->fields.marks |= SPILLWAY_SUM_NOT_HELD;
    decision->is_changed = 1;
    if (is_held) {
      spillway_leave_slot(slot, SPILLWAY_SUM_FLUSHED, decision);
    }
    return;
  }
  const __u16 asked = packet->fields.common.destination;
  const __u8 partial = slot->state == SPILLWAY_SUM_BUSY ? SPILLWAY_SUM_PARTIAL : 0;
  spillway_sum_say(decision, SPILLWAY_SUM_TURN, SPILLWAY_SUM_DID_FLUSH);
  decision->move = SPILLWAY_SUM_MOVE_READ;
  decision->is_changed = 1;
  *packet = slot->header;
  packet->fields.common.source = asked;
  spillway_dress_sum(&slot->header, (__u8)(SPILLWAY_SUM_ADDED | partial), packet);
  spillway_leave_slot(slot, SPILLWAY_SUM_FLUSHED, decision);
}

static inline void spillway_decide_result(const struct spillway_sum_key* key, __u64 now_ns,
                                          struct spillway_sum_slot* slot,
                                          const union spillway_sum_image* packet,
                                          struct spillway_sum_decision* decision) {
  const int is_for_many = (packet->fields.marks & SPILLWAY_SUM_MULTIPLY) != 0 &&
                          (packet->fields.recipients[0] | packet->fields.recipients[1]) != 0;
  spillway_sum_say(decision, is_for_many ? SPILLWAY_SUM_TO_MANY : SPILLWAY_SUM_FORWARD,
                   SPILLWAY_SUM_DID_RESULT);
  if (spillway_is_same_chunk(slot, key, packet)) {
    spillway_leave_slot(slot, SPILLWAY_SUM_OVER, decision);
    slot->claimed_ns = now_ns; /* late parts are dropped for one lease from now */
  }
}

/* Decides about a PART, FLUSH or RESULT by the content of its slot. Changes slot and packet, except
 * for their words: these move as decision->move says. `route` is the packet's; after a SWAP it is
 * the route of what was in the slot. */
static inline void spillway_decide_sum(const struct spillway_sum_config* config,
                                       const struct spillway_sum_job* job,
                                       const struct spillway_sum_key* key, __u64 now_ns,
                                       struct spillway_sum_slot* slot,
                                       union spillway_sum_image* packet,
                                       struct spillway_sum_route* route,
                                       struct spillway_sum_decision* decision) {
  if (packet->fields.kind == SPILLWAY_SUM_PART) {
    spillway_decide_part(config, job, key, now_ns, slot, packet, route, decision);
  } else if (packet->fields.kind == SPILLWAY_SUM_FLUSH) {
    spillway_decide_flush(key, slot, packet, decision);
  } else {
    spillway_decide_result(key, now_ns, slot, packet, decision);
  }
}

/* ------------------------------------------------------------------ afterwards */

static inline int spillway_sum_loses_slot(const struct spillway_sum_decision* decision) {
  return decision->frees && decision->action == SPILLWAY_SUM_SWAP;
}

static inline void spillway_add_sum_counters(const struct spillway_sum_counters* from,
                                             struct spillway_sum_counters* to) {
  __u32 i;
  for (i = 0; i < SPILLWAY_SUM_OUTCOMES; ++i) {
    to->outcomes[i] += from->outcomes[i];
  }
  to->lost_slots += from->lost_slots;
  to->copies += from->copies;
  to->unknown += from->unknown;
}

/* Counts the slots of jobs. `freed` is the job in decision->row, if the decision frees a slot. */
static inline void spillway_account_sum(const struct spillway_sum_decision* decision,
                                        struct spillway_sum_job* job,
                                        struct spillway_sum_job* freed) {
  if (decision->takes) {
    __sync_fetch_and_add(&job->held, 1);
  }
  if (decision->frees && freed->held != 0) { /* 0: the slot was the row's former job's */
    __sync_fetch_and_add(&freed->held, -1);
  }
}

SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_sum_config) == 16, "config is 16 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_sum_slot) == 160 + SPILLWAY_SUM_WORD_BYTES,
                       "a slot and its words");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_sum_decision) == 8, "decision is 8 bytes");

#endif /* SPILLWAY_DATAPLANE_SUM_SLOTS_H */
