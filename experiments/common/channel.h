/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gradient through an imagined network, for experiments that train: encoded, put into packets,
 * some of these trimmed or lost, decoded. The C interface that channel.py loads.
 *
 * Every packet is hit on its own with probability `share`. All draws (rotations, dithers, which
 * packets) follows from `seed` alone, which ought to differ from gradient to gradient: errors are
 * then independent.
 *
 * Functions return NULL, or a sentence that says what is wrong and stays valid until the thread's
 * next call; `estimate` is then unchanged. Any thread. Arrays hold `length` values and do not
 * overlap.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define EXPERIMENT_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* The fate of the packets. Bytes are those of Ethernet frames without their check sequence. */
typedef struct experiment_delivery {
  uint64_t packets;
  uint64_t hit;
  uint64_t bytes_sent;
  uint64_t bytes_arrived;
} experiment_delivery;

/*
 * Trims packets. `code` is "planes", Spillway's own with its default precision, cut at its default
 * trim size; or one of the HotNets'24 paper's, "sign-magnitude", "sq", "sd" or "rht", cut behind
 * its one-bit heads.
 */
EXPERIMENT_API const char* experiment_trim(const char* code, double share, uint64_t seed,
                                           const float* gradient, size_t length, float* estimate,
                                           experiment_delivery* delivery);

/*
 * Loses packets of Spillway's. With `rescaled` what did not come of a row is made up for by what
 * did; without, it counts as zero. has_come[i] says whether anything came of the row of value i:
 * where nothing did, the estimate is zero.
 */
EXPERIMENT_API const char* experiment_lose(double share, uint64_t seed, int rescaled,
                                           const float* gradient, size_t length, float* estimate,
                                           uint8_t* has_come, experiment_delivery* delivery);

#ifdef __cplusplus
}
#endif
