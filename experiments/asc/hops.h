/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of entropy-coded all-reduces of integers, from Python: codec/entropy and its rivals
 * (codec/reference/integer_coder.h says what they are) on the numbers of each hop of a ring, and
 * how evenly rules share them out (collective/entropy/chunk_layout.h).
 *
 * Functions return NULL, or a sentence that says what is wrong and stays valid until the thread's
 * next call. One thread at a time per handle.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/channel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct experiment_hops experiment_hops;

enum { EXPERIMENT_CHUNK_RULES = 3 }; /* equal, balanced, striped */
enum { EXPERIMENT_MOST_CHUNKS = 4 }; /* that are followed round the ring */
enum { EXPERIMENT_HOP_WORKS = 3 };   /* encode, decode, learn */

/* The coders' names, separated by commas, in the order of rows. The first row is "entropy". */
EXPERIMENT_API const char* experiment_hop_coders(void);

EXPERIMENT_API const char* experiment_hops_open(unsigned ranks, size_t length,
                                                experiment_hops** hops);
EXPERIMENT_API void experiment_hops_close(experiment_hops* hops);

/*
 * One step. `parts` holds the ranks' integers, one rank after another. `bits`, by coder and ranks
 * in the sum (1 to all), are bits per value of a few striped chunks on their way round a ring;
 * every coder has learned from the steps before. `seconds`, by coder, are the processor's per
 * value: to encode, to decode, to learn. `imbalance`, by rule, is the longest chunk over the mean
 * one: first of a rank's own numbers, then of the sum.
 */
EXPERIMENT_API const char* experiment_hops_step(experiment_hops* hops, const int32_t* parts,
                                                double* bits,
                                                double seconds[][EXPERIMENT_HOP_WORKS],
                                                double imbalance[EXPERIMENT_CHUNK_RULES][2]);

#ifdef __cplusplus
}
#endif
