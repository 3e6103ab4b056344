/* SPDX-License-Identifier: Apache-2.0
 *
 * Map entries for sums, shared by the eBPF switch and its user-space side. Plain C for both.
 */
#ifndef SPILLWAY_DATAPLANE_BPF_SUM_MAPS_H
#define SPILLWAY_DATAPLANE_BPF_SUM_MAPS_H

#include <linux/bpf.h>

#include "switch/dataplane/sum_copies.h"

struct spillway_sum_entry {
  struct bpf_spin_lock lock;
  __u32 reserved;
  struct spillway_sum_slot slot;
};

/* One CPU's counts for the job in one row. The extra row at the end counts for jobs that have
 * no row or have lost theirs. */
struct spillway_sum_tally {
  __u32 name; /* of the job */
  __u32 reserved;
  struct spillway_sum_counters counters;
};
#define SPILLWAY_SUM_TALLIES (SPILLWAY_SUM_JOBS + 1)
#define SPILLWAY_SUM_NO_ROW SPILLWAY_SUM_JOBS

#endif /* SPILLWAY_DATAPLANE_BPF_SUM_MAPS_H */
