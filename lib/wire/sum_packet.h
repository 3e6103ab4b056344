/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a sum packet, for C, C++ and eBPF: numbers that switches on the path may add.
 * docs/wire.md draws them; docs/adr/0017 gives the reasons.
 *
 * A chunk is SPILLWAY_SUM_WORDS little-endian words of 64 bits, from one piece of one operation. To
 * add two packets of a chunk, a switch or owner adds their words and their tags, and nothing else.
 * The ranks decide how many numbers share a word, and leave enough room between them that no sum
 * overflows. Every chunk has an owner, the rank that receives all parts and sends the result:
 *
 *   PART         to the owner: the contribution of `ranks`. Switches add it to others of its chunk.
 *   RETRANSMIT   to the owner: the same part again, which bypasses the slots of all switches.
 *   FLUSH        from the owner towards a rank whose part is missing: a switch on the path that
 *                holds some of the chunk returns it, else the rank sends a RETRANSMIT. No words.
 *   RESULT       from the owner: the sum, and the ranks in it. With MULTIPLY a switch copies it to
 *                all `recipients` that it knows.
 *   WANT         to the owner: the sender has no result yet. No words.
 *
 * A switch that redirects a packet writes the new rank to `destination`, which no tag covers. It
 * redirects copies of a RESULT, and sums that leave a slot, which go to their owner. A switch that
 * holds some of the chunk responds to a FLUSH with a PART that has ADDED and PARTIAL.
 *
 * Levels: ranks send level 0. A switch adds only packets of its own level, and sends sums one level
 * up when need[level] ranks are in them: racks first, then the switches that connect them.
 *
 * The tag, of 128 bits, can be summed as well (wire/sum_datagram.h). By it the owner verifies that
 * a sum has exactly the parts of exactly the ranks it names, each once, whichever switch added it
 * up. No tag covers the fields that only switches act on (marks, level, urgency, need, recipients).
 *
 * Only this file knows offsets. No pointers, no padding, only kernel types.
 */
#ifndef SPILLWAY_WIRE_SUM_PACKET_H
#define SPILLWAY_WIRE_SUM_PACKET_H

#include "wire/packet.h"

/* The size is fixed, so that a switch can swap its slot with any job's packet in place. Header and
 * words fit an MTU of 1,500 over IPv6. */
#define SPILLWAY_SUM_WORDS 168
#define SPILLWAY_SUM_WORD_BYTES (SPILLWAY_SUM_WORDS * 8)

/* One bit per rank, rank 0 in the lowest bit of the first word. Switches sum nothing for larger
 * groups. */
#define SPILLWAY_SUM_RANKS 128
#define SPILLWAY_SUM_RANK_WORDS (SPILLWAY_SUM_RANKS / 64)
#define SPILLWAY_SUM_LEVELS 2

enum spillway_sum_kind {
  SPILLWAY_SUM_PART = 1,
  SPILLWAY_SUM_RETRANSMIT = 2,
  SPILLWAY_SUM_FLUSH = 3,
  SPILLWAY_SUM_RESULT = 4,
  SPILLWAY_SUM_WANT = 5
};
#define SPILLWAY_SUM_KINDS 6 /* 0 is no kind */

/* Marks: what happened to the packet on its path; and MULTIPLY. */
#define SPILLWAY_SUM_ADDED 0x01     /* has left a slot */
#define SPILLWAY_SUM_PARTIAL 0x02   /* left before all ranks were in it */
#define SPILLWAY_SUM_EVICTED 0x04   /* its slot went to a more urgent chunk, or its lease expired */
#define SPILLWAY_SUM_COLLISION 0x08 /* not added: another chunk had its slot */
#define SPILLWAY_SUM_OVERLAP 0x10   /* not added: some of its ranks, but not all, were already in */
#define SPILLWAY_SUM_CONGESTED 0x20 /* it, or a part added to it, met congestion */
#define SPILLWAY_SUM_NOT_HELD 0x40  /* FLUSH: a switch was asked, and held nothing of the chunk */
#define SPILLWAY_SUM_MULTIPLY 0x80  /* RESULT: for all recipients */

/* A number of 128 bits. */
struct spillway_sum_tag {
  __u64 low;
  __u64 high;
} __attribute__((packed));

struct spillway_sum_header {
  struct spillway_packet_header common; /* packet is the chunk's index in its piece */
  __u64 signature;
  __u8 kind;
  __u8 marks;
  __u8 level;
  __u8 urgency; /* the more urgent job takes a slot from the less urgent */
  __u16 owner;
  __u8 need[SPILLWAY_SUM_LEVELS]; /* ranks that complete a sum at each level; 0: never complete */
  __u64 ranks[SPILLWAY_SUM_RANK_WORDS];      /* ranks with a part in it; FLUSH: missing ranks */
  __u64 recipients[SPILLWAY_SUM_RANK_WORDS]; /* RESULT with MULTIPLY; else empty */
  struct spillway_sum_tag tag;
} __attribute__((packed));

#define SPILLWAY_SUM_PACKET (sizeof(struct spillway_sum_header) + SPILLWAY_SUM_WORD_BYTES)

SPILLWAY_ASSERT_FIELD(spillway_sum_header, signature, 24);
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
  return kind == SPILLWAY_SUM_PART || kind == SPILLWAY_SUM_RETRANSMIT ||
         kind == SPILLWAY_SUM_RESULT;
}

/* Size of a packet of this kind as it is sent, in bytes. */
static inline __u32 spillway_sum_packet_size(__u8 kind) {
  return (__u32)sizeof(struct spillway_sum_header) +
         (spillway_sum_has_words(kind) ? SPILLWAY_SUM_WORD_BYTES : 0);
}

/* The caller has checked version and type. */
static inline int spillway_is_valid_sum(const struct spillway_sum_header* header) {
  return (header->common.flags & ~SPILLWAY_FLAGS_KNOWN) == 0 && header->kind != 0 &&
         header->kind < SPILLWAY_SUM_KINDS && header->level <= SPILLWAY_SUM_LEVELS &&
         header->owner < SPILLWAY_SUM_RANKS && header->common.source < SPILLWAY_SUM_RANKS;
}

/* The tag of a sum, from the tags of its addends. */
static inline struct spillway_sum_tag spillway_add_tags(struct spillway_sum_tag left,
                                                        struct spillway_sum_tag right) {
  struct spillway_sum_tag sum;
  sum.low = left.low + right.low;
  sum.high = left.high + right.high + (sum.low < left.low);
  return sum;
}

#endif /* SPILLWAY_WIRE_SUM_PACKET_H */
