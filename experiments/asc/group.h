/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduces of gradients in the simulator, from Python: the shipped engine and transport, ranks
 * on hosts of their own around one switch, codecs that take no time. Its time is then the time on
 * sent.
 *
 * Functions return NULL, or a sentence that says what is wrong and stays valid until the thread's
 * next call. One thread at a time per group.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/channel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct experiment_group experiment_group;

typedef struct experiment_way {
  const char* code; /* "fp32", "fp16": as they are; "planes", "levels", "entropy" */
  unsigned precision;
  uint64_t tensor; /* its name, for error feedback and codecs that learn; 0: none */
  int is_ring;
} experiment_way;

typedef struct experiment_outcome {
  double seconds;      /* until the last rank has it */
  uint64_t wire_bytes; /* of all ranks together, of UDP payload */
  uint64_t tables;     /* coded: messages that had to carry one */
} experiment_outcome;

/* `chunks`: "equal", "balanced" or "striped"; `rate` of links in bits a second. */
EXPERIMENT_API const char* experiment_group_open(unsigned ranks, uint64_t rate, const char* chunks,
                                                 experiment_group** group);
EXPERIMENT_API void experiment_group_close(experiment_group* group);

/* `parts` holds the ranks' values, one rank after another; `mean` has room for one of them. */
EXPERIMENT_API const char* experiment_group_mean(experiment_group* group, const experiment_way* way,
                                                 const float* parts, size_t length, float* mean,
                                                 experiment_outcome* outcome);

#ifdef __cplusplus
}
#endif
