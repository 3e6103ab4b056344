/* SPDX-License-Identifier: Apache-2.0
 *
 * The headers and words of sum packets in memory, for C, C++ and eBPF: loaded from packets at any
 * address, added, exchanged, stored. These moves are what adding costs a switch; each is one pass.
 * All bytes of a header, and all words, must be there.
 */
#ifndef SPILLWAY_DATAPLANE_SUM_WORDS_H
#define SPILLWAY_DATAPLANE_SUM_WORDS_H

#include "wire/sum_packet.h"

#define SPILLWAY_SUM_HEADER_WORDS (sizeof(struct spillway_sum_header) / 8)

/* A header as fields and as 64-bit words, so that it need not be copied byte by byte. */
union spillway_sum_image {
  struct spillway_sum_header fields;
  __u64 words[SPILLWAY_SUM_HEADER_WORDS];
};

/* eBPF uses a cast: its compiler would copy byte by byte, and its machines load from any
 * address. The asm statements keep the compiler from turning copies into memcpy(), which eBPF
 * does not have. */
#ifdef __bpf__
typedef __u64 __attribute__((may_alias)) spillway_sum_word;
#define SPILLWAY_SUM_UNROLL _Pragma("clang loop unroll_count(24)")
#else
#define SPILLWAY_SUM_UNROLL
#endif

static inline __u64 spillway_load_sum_word(const __u8* from) {
#ifdef __bpf__
  __u64 word = *(const spillway_sum_word*)from;
  __asm__("" : "+r"(word));
#else
  __u64 word;
  __builtin_memcpy(&word, from, sizeof(word));
#endif
  return word;
}

static inline void spillway_store_sum_word(__u8* to, __u64 word) {
#ifdef __bpf__
  __asm__("" : "+r"(word));
  *(spillway_sum_word*)to = word;
#else
  __builtin_memcpy(to, &word, sizeof(word));
#endif
}

/* The words of a header before its ranks. They can be loaded without the rest. */
#define SPILLWAY_SUM_HEAD_WORDS 5

static inline void spillway_load_sum_head(const __u8* from, union spillway_sum_image* to) {
  __u32 i;
  for (i = 0; i < SPILLWAY_SUM_HEAD_WORDS; ++i) {
    to->words[i] = spillway_load_sum_word(from + 8 * i);
  }
}

static inline void spillway_load_sum_header(const __u8* from, union spillway_sum_image* to) {
  __u32 i;
  for (i = 0; i < SPILLWAY_SUM_HEADER_WORDS; ++i) {
    to->words[i] = spillway_load_sum_word(from + 8 * i);
  }
}

static inline void spillway_store_sum_header(__u8* to, const union spillway_sum_image* from) {
  __u32 i;
  for (i = 0; i < SPILLWAY_SUM_HEADER_WORDS; ++i) {
    spillway_store_sum_word(to + 8 * i, from->words[i]);
  }
}

static inline void spillway_swap_sum_headers(union spillway_sum_image* a,
                                             union spillway_sum_image* b) {
  __u32 i;
  for (i = 0; i < SPILLWAY_SUM_HEADER_WORDS; ++i) {
    const __u64 word = a->words[i];
    a->words[i] = b->words[i];
    b->words[i] = word;
  }
}

/* How words move between a slot and a packet. */
enum spillway_sum_move {
  SPILLWAY_SUM_MOVE_NONE = 0,
  SPILLWAY_SUM_MOVE_CLAIM = 1, /* slot = packet */
  SPILLWAY_SUM_MOVE_ADD = 2,   /* slot += packet */
  SPILLWAY_SUM_MOVE_EMIT = 3,  /* slot += packet, packet = slot */
  SPILLWAY_SUM_MOVE_READ = 4,  /* packet = slot */
  SPILLWAY_SUM_MOVE_SWAP = 5
};

static inline void spillway_claim_words(__u64* slot, const __u8* packet) {
  __u32 i;
  SPILLWAY_SUM_UNROLL
  for (i = 0; i < SPILLWAY_SUM_WORDS; ++i) {
    slot[i] = spillway_load_sum_word(packet + 8 * i);
  }
}

static inline void spillway_add_words(__u64* slot, const __u8* packet) {
  __u32 i;
  SPILLWAY_SUM_UNROLL
  for (i = 0; i < SPILLWAY_SUM_WORDS; ++i) {
    slot[i] += spillway_load_sum_word(packet + 8 * i);
  }
}

static inline void spillway_emit_words(__u64* slot, __u8* packet) {
  __u32 i;
  SPILLWAY_SUM_UNROLL
  for (i = 0; i < SPILLWAY_SUM_WORDS; ++i) {
    const __u64 sum = slot[i] + spillway_load_sum_word(packet + 8 * i);
    slot[i] = sum;
    spillway_store_sum_word(packet + 8 * i, sum);
  }
}

static inline void spillway_read_words(const __u64* slot, __u8* packet) {
  __u32 i;
  SPILLWAY_SUM_UNROLL
  for (i = 0; i < SPILLWAY_SUM_WORDS; ++i) {
    spillway_store_sum_word(packet + 8 * i, slot[i]);
  }
}

static inline void spillway_swap_words(__u64* slot, __u8* packet) {
  __u32 i;
  SPILLWAY_SUM_UNROLL
  for (i = 0; i < SPILLWAY_SUM_WORDS; ++i) {
    const __u64 held = slot[i];
    slot[i] = spillway_load_sum_word(packet + 8 * i);
    spillway_store_sum_word(packet + 8 * i, held);
  }
}

static inline void spillway_move_words(__u64* slot, __u8* packet, __u8 move) {
  switch (move) {
    case SPILLWAY_SUM_MOVE_CLAIM:
      spillway_claim_words(slot, packet);
      break;
    case SPILLWAY_SUM_MOVE_ADD:
      spillway_add_words(slot, packet);
      break;
    case SPILLWAY_SUM_MOVE_EMIT:
      spillway_emit_words(slot, packet);
      break;
    case SPILLWAY_SUM_MOVE_READ:
      spillway_read_words(slot, packet);
      break;
    case SPILLWAY_SUM_MOVE_SWAP:
      spillway_swap_words(slot, packet);
      break;
    default:
      break;
  }
}

SPILLWAY_STATIC_ASSERT(sizeof(union spillway_sum_image) == sizeof(struct spillway_sum_header),
                       "a header is whole words");

#endif /* SPILLWAY_DATAPLANE_SUM_WORDS_H */
