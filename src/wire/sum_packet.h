/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a sum packet, for C, C++ and eBPF alike: numbers that whoever is on the way may add.
 * docs/wire.md draws them, docs/adr/0017 says why they are so.
 *
 * A chunk is SPILLWAY_SUM_WORDS words of 64 bits, little-endian, of one piece of one operation. Who
 * adds two packets of a chunk adds their words, their tags and nothing else: how many numbers share
 * a word is the ranks' business, who leave so much room between them that no sum spills over. Every
 * chunk has an owner, the rank that all parts go to and the result comes from:
 *
 *   PART     to the owner: what `ranks` contribute. Switches add it to others of its chunk.
 *   REPEAT   to the owner: the same once more, past all switches' slots.
 *   FLUSH    from the owner towards a rank whose part is missing: a switch on the way that holds
 *            some of the chunk gives it, else the rank sends a REPEAT. No words.
 *   RESULT   from the owner: the sum, and who is in it. With MULTIPLY a switch sends it on to all
 *            `recipients` that it knows.
 *   WANT     to the owner: I have no result yet. No words.
 *
 * A switch that sends a packet to another rank than it came for writes that rank to `destination`,
 * which no tag covers: copies of a RESULT, and sums that leave a slot, which go to their owner. The
 * answer to a FLUSH is a PART, with ADDED and PARTIAL.
 *
 * Levels: ranks send level 0. A switch adds packets of its own level alone and sends sums on one
 * level up, when need[level] ranks are in them: racks first, then what connects them.
 *
 * The tag, of 128 bits, is a sum as well (wire/sum_tag.h): the owner sees by it that a sum is of
 * exactly the parts of exactly the ranks it names, each once, whoever added it up. What a switch
 * goes by alone (marks, level, urgency, need, recipients) no tag covers.
 *
 * Only this file knows offsets. No pointers, no padding, only kernel types.
 */
#ifndef SPILLWAY_WIRE_SUM_PACKET_H
#define SPILLWAY_WIRE_SUM_PACKET_H

#include "wire/packet.h"

/* Fixed, so that a switch can exchange what it holds for what comes: of any job, in place. Header
 * and words fit an MTU of 1,500 over IPv6. */
#define SPILLWAY_SUM_WORDS 168
#define SPILLWAY_SUM_WORD_BYTES (SPILLWAY_SUM_WORDS * 8)

/* Ranks have a bit each, the first in the lowest of the first word. Of a group with more ranks
 * nothing is summed up on the way. */
#define SPILLWAY_SUM_RANKS 128
#define SPILLWAY_SUM_RANK_WORDS (SPILLWAY_SUM_RANKS / 64)
#define SPILLWAY_SUM_LEVELS 2

enum spillway_sum_kind {
  SPILLWAY_SUM_PART = 1,
  SPILLWAY_SUM_REPEAT = 2,
  SPILLWAY_SUM_FLUSH = 3,
  SPILLWAY_SUM_RESULT = 4,
  SPILLWAY_SUM_WANT = 5
};
#define SPILLWAY_SUM_KINDS 6 /* 0 is none */

/* What happened to it on the way; and MULTIPLY. */
#define SPILLWAY_SUM_ADDED 0x01     /* has left a slot */
#define SPILLWAY_SUM_PARTIAL 0x02   /* before all were in it */
#define SPILLWAY_SUM_EVICTED 0x04   /* by another chunk, more urgent or in an old one's place */
#define SPILLWAY_SUM_COLLISION 0x08 /* not added: its slot was another chunk's */
#define SPILLWAY_SUM_OVERLAP 0x10   /* not added: some of its ranks, but not all, were in already */
#define SPILLWAY_SUM_CONGESTED 0x20 /* it, or what was added to it, met congestion */
#define SPILLWAY_SUM_NOT_HELD 0x40  /* FLUSH: a switch was asked, and had nothing of the chunk */
#define SPILLWAY_SUM_MULTIPLY 0x80  /* RESULT: for all recipients */

/* A number of 128 bits. */
struct spillway_sum_tag {
  __u64 low;
  __u64 high;
} __attribute__((packed));

struct spillway_sum_header {
  struct spillway_packet_header common; /* packet is the chunk's number in its piece */
  __u8 kind;
  __u8 marks;
  __u8 level;
  __u8 urgency; /* how much its job wants a slot: more takes from less */
  __u16 owner;
  __u8 need[SPILLWAY_SUM_LEVELS];       /* ranks that make a sum of each level whole; 0: none is */
  __u64 ranks[SPILLWAY_SUM_RANK_WORDS]; /* whose parts are in it; FLUSH: whose are missing */
  __u64 recipients[SPILLWAY_SUM_RANK_WORDS]; /* RESULT with MULTIPLY; else none */
  struct spillway_sum_tag tag;
} __attribute__((packed));

#define SPILLWAY_SUM_PACKET (sizeof(struct spillway_sum_header) + SPILLWAY_SUM_WORD_BYTES)

SPILLWAY_ASSERT_FIELD(spillway_sum_header, kind, 32);
SPILLWAY_ASSERT_FIELD(spillway_sum_header, marks, 33);
SPILLWAY_ASSERT_FIELD(spillway_sum_header, level, 34);
SPILLWAY_ASSERT_FIELD(spillway_sum_header, urgency, 35);
SPILLWAY_ASSERT_FIELD(spillway_sum_header, owner, 36);
SPILLWAY_ASSERT_FIELD(spillway_sum_header, need, 38);
SPILLWAY_ASSERT_FIELD(spillway_sum_header, ranks, 40);
SPILLWAY_ASSERT_FIELD(spillway_sum_header, recipients, 56);
SPILLWAY_ASSERT_FIELD(spillway_sum_header, tag, 72);
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_sum_header) == 88, "sum header is 88 bytes");
SPILLWAY_STATIC_ASSERT(SPILLWAY_SUM_PACKET <= 1500 - SPILLWAY_IPV6_HEADER - SPILLWAY_UDP_HEADER,
                       "a sum packet fits an MTU of 1,500");

static inline int spillway_sum_has_words(__u8 kind) {
  return kind == SPILLWAY_SUM_PART || kind == SPILLWAY_SUM_REPEAT || kind == SPILLWAY_SUM_RESULT;
}

/* Bytes of a packet of this kind as it is sent. */
static inline __u32 spillway_sum_packet_size(__u8 kind) {
  return (__u32)sizeof(struct spillway_sum_header) +
         (spillway_sum_has_words(kind) ? SPILLWAY_SUM_WORD_BYTES : 0);
}

/* Version and type have been looked at. */
static inline int spillway_is_valid_sum(const struct spillway_sum_header* header) {
  return (header->common.flags & ~SPILLWAY_FLAGS_KNOWN) == 0 && header->kind != 0 &&
         header->kind < SPILLWAY_SUM_KINDS && header->level <= SPILLWAY_SUM_LEVELS &&
         header->owner < SPILLWAY_SUM_RANKS && header->common.source < SPILLWAY_SUM_RANKS;
}

/* The tag of a sum, of the tags of what was added. */
static inline struct spillway_sum_tag spillway_add_tags(struct spillway_sum_tag left,
                                                        struct spillway_sum_tag right) {
  struct spillway_sum_tag sum;
  sum.low = left.low + right.low;
  sum.high = left.high + right.high + (sum.low < left.low);
  return sum;
}

#endif /* SPILLWAY_WIRE_SUM_PACKET_H */
