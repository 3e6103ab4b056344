/* SPDX-License-Identifier: Apache-2.0
 *
 * What the measuring programs and their user-space side agree on: plain C for both.
 */
#ifndef SPILLWAY_DATAPLANE_BPF_PROBE_MAPS_H
#define SPILLWAY_DATAPLANE_BPF_PROBE_MAPS_H

/* Ranks 1 to so many send their parts of a chunk, and of so many chunks before the next operation
 * begins with the first again. */
#define SPILLWAY_FEED_RANKS 7
#define SPILLWAY_FEED_CHUNKS 512

#endif /* SPILLWAY_DATAPLANE_BPF_PROBE_MAPS_H */
