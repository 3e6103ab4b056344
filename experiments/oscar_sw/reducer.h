/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduces of integer gradients that are mostly zero, from Python: lib/codec/sketch as it is
 * shipped, and its rivals (codec/reference/sparse_reducer.h says what they are).
 *
 *   scheme                          size
 *   predicted-last, -counter        cells per hundred misses
 *   median, median-raw              cells per hundred values that are not zero; raw: with a bitmap
 *   peeled, peeled-raw              the same
 *   union                           unused
 *   top-k                           values that a rank sends
 *
 * Functions return NULL, or a sentence that says what is wrong and stays valid until the thread's
 * next call. One thread at a time per reducer.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/channel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct experiment_reducer experiment_reducer;

typedef struct experiment_reduction {
  uint64_t part_bits; /* a rank's own, on the way to the owners */
  uint64_t sum_bits;  /* the sum's, on the way back */
  uint64_t nonzero;   /* values that are not zero at some rank */
  uint64_t predicted;
  uint64_t misses;
  uint64_t unused; /* values that are in no sum, of all ranks together */
} experiment_reduction;

/* `limit`: of a rank's magnitudes. */
EXPERIMENT_API const char* experiment_reducer_open(const char* scheme, size_t size, size_t length,
                                                   unsigned ranks, int32_t limit,
                                                   experiment_reducer** reducer);
EXPERIMENT_API void experiment_reducer_close(experiment_reducer* reducer);

/*
 * One step. `parts` holds the ranks' values, one rank after another; `sum` has room for one of
 * them. is_used, as large as `parts`, says which values are in the sum.
 */
EXPERIMENT_API const char* experiment_reduce(experiment_reducer* reducer, uint64_t seed,
                                             const int32_t* parts, int32_t* sum, uint8_t* is_used,
                                             experiment_reduction* reduction);

#ifdef __cplusplus
}
#endif
