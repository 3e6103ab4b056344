/* SPDX-License-Identifier: Apache-2.0
 *
 * What a switch that adds knows of the jobs whose sum packets pass: which row of its tables is
 * whose, the present epoch, how many slots a job holds and may hold. For C, C++ and eBPF alike.
 *
 * Jobs are met, not announced: the first packet of one takes a row. A row that nobody used for
 * SPILLWAY_SUM_JOB_IDLE_S goes to the next job that finds no other; those user space has fixed
 * stay.
 *
 * A switch has no keys, so anybody can make up a job's number and its epoch. The port a packet
 * comes in at is the one thing that its sender cannot make up. So a row, and an epoch of a job, are
 * confirmed by packets that come in at two ports:
 *   - a row that is not confirmed goes to the next job that finds no other, without waiting;
 *   - a confirmed epoch stays the present one as long as parts of it come in at two ports in turn,
 *     and for a lease after; one that is not confirmed gives way to any other at once.
 * Parts of another epoch than the present one go on to their owner unadded: a made-up epoch costs a
 * job speed and never a part.
 *
 * Rows are shared by processors without a lock: names change by compare-and-swap, slots are counted
 * by atomic addition, all else may be read a moment late, which costs a slot or a repeat and never
 * a sum.
 */
#ifndef SPILLWAY_DATAPLANE_SUM_JOBS_H
#define SPILLWAY_DATAPLANE_SUM_JOBS_H

#include "wire/sum_packet.h"

#define SPILLWAY_SUM_JOBS 64
#define SPILLWAY_SUM_NO_JOB SPILLWAY_SUM_JOBS
#define SPILLWAY_SUM_PROBES 8 /* rows in which a job may be */
#define SPILLWAY_SUM_JOB_IDLE_S 60
#define SPILLWAY_SUM_JOB_FIXED 0xFFFFFFFFU /* for seen_s: never idle */
#define SPILLWAY_SUM_CONFIRMED 0xFFFFFFFFU /* for ports: packets came in at two */

/* Addresses of a packet, as its home keeps them: sum_frame.h those of a frame, a simulator what it
 * likes. Packets of the same shape can be readdressed into each other in place. */
struct spillway_sum_route {
  __u8 shape;
  __u8 traffic_class; /* DSCP << 2 | ECN */
  __u8 reserved[6];
  __u64 bytes[4];
};

/* A rank whose parts came by: where it is, and who else is that way. */
struct spillway_sum_member {
  __u32 name; /* of its job; others: not known */
  __u16 epoch;
  __u16 reserved;
  __u32 port; /* that its packets come in at, by whatever number its home gives ports */
  __u32 reserved_too;
  struct spillway_sum_route route;
  __u64 ranks[SPILLWAY_SUM_RANK_WORDS];
};

struct spillway_sum_directory {
  __u32 names[SPILLWAY_SUM_JOBS];  /* spillway_sum_name(); 0: free */
  __u32 seen_s[SPILLWAY_SUM_JOBS]; /* seconds of the caller's clock, or SPILLWAY_SUM_JOB_FIXED */
  __u32 ports[SPILLWAY_SUM_JOBS];  /* that the job was met at, or SPILLWAY_SUM_CONFIRMED */
};

struct spillway_sum_job {
  __u32 name; /* others than the directory's: of a job that had the row before */
  __u32 row;
  __u32 held;       /* slots with parts of it that have not gone on */
  __u32 limit;      /* of these; 0: none */
  __u32 pool_first; /* STATIC: its slots */
  __u32 pool_count; /* 0: those of the config */
  __u16 epoch;      /* the present one */
  __u8 has_epoch;
  __u8 is_confirmed; /* the epoch: parts of it came in at two ports */
  __u32 epoch_port;  /* that the part came in at which epoch_seen_ns is of */
  __u64 epoch_seen_ns;
  struct spillway_sum_member members[SPILLWAY_SUM_RANKS];
};

static inline __u32 spillway_sum_name(__u16 job) {
  return (__u32)job + 1;
}

static inline __u32 spillway_sum_first_row(__u32 name) {
  return (name * 0x9E3779B1U) >> 26;
}

static inline int spillway_is_idle_row(const struct spillway_sum_directory* directory, __u32 row,
                                       __u32 now_s) {
  const __u32 seen = directory->seen_s[row];
  return directory->names[row] == 0 ||
         (seen != SPILLWAY_SUM_JOB_FIXED && now_s - seen > SPILLWAY_SUM_JOB_IDLE_S);
}

/* Whether a job may take this row of another one if it finds no idle row. */
static inline int spillway_yields_row(const struct spillway_sum_directory* directory, __u32 row) {
  return directory->ports[row] != SPILLWAY_SUM_CONFIRMED &&
         directory->seen_s[row] != SPILLWAY_SUM_JOB_FIXED;
}

/* The job's from now on? Not if another processor was faster. */
static inline int spillway_seize_row(struct spillway_sum_directory* directory, __u32 row,
                                     __u32 name, __u32 now_s, __u32 port) {
  const __u32 before = directory->names[row];
  const __u32 met = __sync_val_compare_and_swap(&directory->names[row], before, name);
  if (met != before && met != name) {
    return 0;
  }
  directory->seen_s[row] = now_s;
  directory->ports[row] = port;
  return 1;
}

/* The row of a job that has none yet; SPILLWAY_SUM_NO_JOB: all it may have are others'. */
static inline __u32 spillway_take_row(struct spillway_sum_directory* directory, __u32 name,
                                      __u32 now_s, __u32 port) {
  const __u32 first = spillway_sum_first_row(name);
  __u32 i;
  for (i = 0; i < SPILLWAY_SUM_PROBES; ++i) {
    const __u32 row = (first + i) & (SPILLWAY_SUM_JOBS - 1);
    if (spillway_is_idle_row(directory, row, now_s) &&
        spillway_seize_row(directory, row, name, now_s, port)) {
      return row;
    }
  }
  for (i = 0; i < SPILLWAY_SUM_PROBES; ++i) {
    const __u32 row = (first + i) & (SPILLWAY_SUM_JOBS - 1);
    if (spillway_yields_row(directory, row) &&
        spillway_seize_row(directory, row, name, now_s, port)) {
      return row;
    }
  }
  return SPILLWAY_SUM_NO_JOB;
}

/* The row of a job that has one; SPILLWAY_SUM_NO_JOB: it has none. */
static inline __u32 spillway_known_row(const struct spillway_sum_directory* directory, __u32 name) {
  const __u32 first = spillway_sum_first_row(name);
  __u32 i;
  for (i = 0; i < SPILLWAY_SUM_PROBES; ++i) {
    const __u32 row = (first + i) & (SPILLWAY_SUM_JOBS - 1);
    if (directory->names[row] == name) {
      return row;
    }
  }
  return SPILLWAY_SUM_NO_JOB;
}

/* The row of a job one of whose packets came in at `port`. */
static inline __u32 spillway_find_row(struct spillway_sum_directory* directory, __u32 name,
                                      __u32 now_s, __u32 port) {
  const __u32 row = spillway_known_row(directory, name);
  if (row == SPILLWAY_SUM_NO_JOB) {
    return spillway_take_row(directory, name, now_s, port);
  }
  if (directory->seen_s[row] != now_s && directory->seen_s[row] != SPILLWAY_SUM_JOB_FIXED) {
    directory->seen_s[row] = now_s;
  }
  if (directory->ports[row] != SPILLWAY_SUM_CONFIRMED && directory->ports[row] != port) {
    directory->ports[row] = SPILLWAY_SUM_CONFIRMED;
  }
  return row;
}

/* The row's job is this one from now on. */
static inline void spillway_open_job(struct spillway_sum_job* job, __u32 row, __u32 name) {
  if (job->name == name) {
    return;
  }
  job->row = row;
  job->held = 0;
  job->limit = 0;
  job->pool_first = 0;
  job->pool_count = 0;
  job->has_epoch = 0;
  job->is_confirmed = 0;
  job->name = name;
}

/* Whether the present epoch's last sign of life is longer ago. Another processor may be ahead. */
static inline int spillway_is_silent_for(const struct spillway_sum_job* job, __u64 now_ns,
                                         __u64 span_ns) {
  return now_ns > job->epoch_seen_ns && now_ns - job->epoch_seen_ns > span_ns;
}

/* Whether a part is of another epoch than the present one, which has not ended. A part of the
 * present one is a sign of life only if the last such part came in at another port, and not with
 * every packet: other processors read what is written here. */
static inline int spillway_is_other_epoch(struct spillway_sum_job* job, __u16 epoch, __u64 now_ns,
                                          __u64 lease_ns, __u32 port) {
  const int is_present = job->has_epoch && epoch == job->epoch;
  if (is_present && (job->epoch_port == port ||
                     (job->is_confirmed && !spillway_is_silent_for(job, now_ns, lease_ns / 8)))) {
    return 0;
  }
  if (!is_present && job->has_epoch && job->is_confirmed &&
      !spillway_is_silent_for(job, now_ns, lease_ns)) {
    return 1;
  }
  job->epoch = epoch;
  job->has_epoch = 1;
  job->is_confirmed = (__u8)is_present;
  job->epoch_port = port;
  job->epoch_seen_ns = now_ns;
  return 0;
}

SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_sum_route) == 40, "route is 40 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_sum_member) == 72, "member is 72 bytes");
SPILLWAY_STATIC_ASSERT(sizeof(struct spillway_sum_job) == 40 + 72 * SPILLWAY_SUM_RANKS,
                       "a job and its members");

#endif /* SPILLWAY_DATAPLANE_SUM_JOBS_H */
