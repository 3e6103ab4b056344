/* SPDX-License-Identifier: Apache-2.0
 *
 * The jobs whose sum packets pass a switch that adds: which table row each job has, its current
 * epoch, and how many slots it holds and may hold. For C, C++ and eBPF.
 *
 * Jobs are discovered, not announced: the first packet of a job takes a row. A row unused for
 * SPILLWAY_SUM_JOB_IDLE_S may go to another job. Rows that user space has fixed stay.
 *
 * A switch has no keys, so anybody can forge a job's number and its epoch. A sender cannot forge
 * the port at which its packets come in. So packets from two ports confirm a row or an epoch:
 *   - an unconfirmed row goes to a job that finds no idle one, but not at once: its job has a grace
 *     to be heard at a second port, so a stranger's packet cannot displace it between two of its
 *     own. There is no grace towards the same port, nor where a port has several unconfirmed rows,
 *     as one does that makes jobs up. A port that replaces its own row does not renew the grace;
 *   - a confirmed epoch stays current while parts of it come in at two ports in turn, and for a
 *     lease after that; an unconfirmed epoch gives way to any other at once.
 * Parts of an epoch that is not current are forwarded to their owner unadded: a forged epoch costs
 * a job speed, never a part.
 *
 * CPUs share rows without a lock. Names change by compare-and-swap and slots are counted by atomic
 * addition. All else may be read slightly late, which costs a slot or a retransmission, never a
 * sum.
 */
#ifndef SPILLWAY_DATAPLANE_SUM_JOBS_H
#define SPILLWAY_DATAPLANE_SUM_JOBS_H

#include "wire/sum_packet.h"

#define SPILLWAY_SUM_JOBS 64
#define SPILLWAY_SUM_NO_JOB SPILLWAY_SUM_JOBS
#define SPILLWAY_SUM_PROBES 8 /* rows that a job may use */
#define SPILLWAY_SUM_JOB_IDLE_S 60
#define SPILLWAY_SUM_JOB_GRACE_S 1         /* of unconfirmed rows; in whole ticks, so 1 to 2 s */
#define SPILLWAY_SUM_JOB_FIXED 0xFFFFFFFFU /* for seen_s: never idle */
#define SPILLWAY_SUM_CONFIRMED 0xFFFFFFFFU /* for ports: packets came in at two ports */

/* A packet's addresses, in the caller's own form: sum_frame.h stores those of a frame, a simulator
 * what it likes. Packets of the same shape can be readdressed into each other in place. */
struct spillway_sum_route {
  __u8 shape;
  __u8 traffic_class; /* DSCP << 2 | ECN */
  __u8 reserved[6];
  __u64 bytes[4];
};

/* A rank whose parts passed: where it is, and which ranks are that way. */
struct spillway_sum_member {
  __u32 name; /* its job's; any other: unknown */
  __u16 epoch;
  __u16 reserved;
  __u32 port; /* where its packets come in, in any port numbering */
  __u32 reserved_too;
  struct spillway_sum_route route;
  __u64 ranks[SPILLWAY_SUM_RANK_WORDS];
};

struct spillway_sum_directory {
  __u32 names[SPILLWAY_SUM_JOBS];   /* spillway_sum_name(); 0: free */
  __u32 seen_s[SPILLWAY_SUM_JOBS];  /* seconds of the caller's clock, or SPILLWAY_SUM_JOB_FIXED */
  __u32 ports[SPILLWAY_SUM_JOBS];   /* of the job's first packet, or SPILLWAY_SUM_CONFIRMED */
  __u32 since_s[SPILLWAY_SUM_JOBS]; /* when the row's grace began */
};

struct spillway_sum_job {
  __u32 name; /* if not the directory's: the row's former job */
  __u32 row;
  __u32 held;       /* its BUSY slots */
  __u32 limit;      /* most it may hold; 0: no limit */
  __u32 pool_first; /* STATIC: the first slot of its pool */
  __u32 pool_count; /* 0: a pool of the config */
  __u16 epoch;      /* the current one */
  __u8 has_epoch;
  __u8 is_confirmed; /* parts of the epoch came in at two ports */
  __u32 epoch_port;  /* where the part that set epoch_seen_ns came in */
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

static inline int spillway_is_unconfirmed_row(const struct spillway_sum_directory* directory,
                                              __u32 row) {
  return directory->ports[row] != SPILLWAY_SUM_CONFIRMED &&
         directory->seen_s[row] != SPILLWAY_SUM_JOB_FIXED;
}

/* True if an unconfirmed row has no grace left towards a job heard at `port`. `before` is the port
 * of the unconfirmed row probed before. The age is signed, because another CPU may be ahead. */
static inline int spillway_yields_row(const struct spillway_sum_directory* directory, __u32 row,
                                      __u32 now_s, __u32 port, __u32 before) {
  const __u32 holder = directory->ports[row];
  return holder == port || holder == before ||
         (__s32)(now_s - directory->since_s[row]) > SPILLWAY_SUM_JOB_GRACE_S;
}

/* Takes the row for a job. Returns 0 if another CPU was faster. */
static inline int spillway_seize_row(struct spillway_sum_directory* directory, __u32 row,
                                     __u32 name, __u32 now_s, __u32 since_s, __u32 port) {
  const __u32 before = directory->names[row];
  const __u32 met = __sync_val_compare_and_swap(&directory->names[row], before, name);
  if (met != before && met != name) {
    return 0;
  }
  directory->seen_s[row] = now_s;
  directory->since_s[row] = since_s;
  directory->ports[row] = port;
  return 1;
}

/* Takes a row for a job that has none. Returns SPILLWAY_SUM_NO_JOB if others hold all that it may
 * use. */
static inline __u32 spillway_take_row(struct spillway_sum_directory* directory, __u32 name,
                                      __u32 now_s, __u32 port) {
  const __u32 first = spillway_sum_first_row(name);
  __u32 before = SPILLWAY_SUM_CONFIRMED; /* no port */
  __u32 i;
  for (i = 0; i < SPILLWAY_SUM_PROBES; ++i) {
    const __u32 row = (first + i) & (SPILLWAY_SUM_JOBS - 1);
    if (spillway_is_idle_row(directory, row, now_s) &&
        spillway_seize_row(directory, row, name, now_s, now_s, port)) {
      return row;
    }
  }
  for (i = 0; i < SPILLWAY_SUM_PROBES; ++i) {
    const __u32 row = (first + i) & (SPILLWAY_SUM_JOBS - 1);
    const __u32 holder = directory->ports[row];
    if (!spillway_is_unconfirmed_row(directory, row)) {
      continue;
    }
    if (spillway_yields_row(directory, row, now_s, port, before) &&
        spillway_seize_row(directory, row, name, now_s,
                           holder == port ? directory->since_s[row] : now_s, port)) {
      return row;
    }
    before = holder;
  }
  return SPILLWAY_SUM_NO_JOB;
}

/* The row of a job; SPILLWAY_SUM_NO_JOB if it has none. */
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

/* The row of a job, one of whose packets came in at `port`. Takes a row if the job has none. */
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

/* Gives the row to this job and resets the former job's state. */
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

/* True if the current epoch's last sign of life is older than `span_ns`. Another CPU may be
 * ahead. */
static inline int spillway_is_silent_for(const struct spillway_sum_job* job, __u64 now_ns,
                                         __u64 span_ns) {
  return now_ns > job->epoch_seen_ns && now_ns - job->epoch_seen_ns > span_ns;
}

/* True if a part is not of the current epoch, and that epoch has not ended. A part of the current
 * epoch is a sign of life only if the last one came in at another port. Not every such part is
 * recorded, because other CPUs read what is written here. */
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
