/* SPDX-License-Identifier: Apache-2.0
 *
 * Constants that the measuring programs share with user space. Plain C for both.
 */
#ifndef SPILLWAY_DATAPLANE_BPF_PROBE_MAPS_H
#define SPILLWAY_DATAPLANE_BPF_PROBE_MAPS_H

/* Ranks 1 to SPILLWAY_FEED_RANKS each send their part of a chunk. After SPILLWAY_FEED_CHUNKS chunks
 * the next operation begins with the first chunk again. */
#define SPILLWAY_FEED_RANKS 7
#define SPILLWAY_FEED_CHUNKS 512

#endif /* SPILLWAY_DATAPLANE_BPF_PROBE_MAPS_H */
