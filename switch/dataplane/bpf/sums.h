/* SPDX-License-Identifier: Apache-2.0
 *
 * Sum packets in the kernel. Slots are entries of a map, each with a lock; sum_slots.h decides, and
 * this file applies the decision to frames. On ingress, XDP or tc claims, adds, emits and swaps in
 * place. XDP can neither grow nor copy a frame, so tc does both on the same interface's ingress: it
 * answers a FLUSH and sends a RESULT to several receivers.
 *
 * In tc, a frame whose VLAN tag is beside it is not added: a slot's route would have to change that
 * tag, too.
 *
 * Slots and jobs are in maps that outlive the process that attached the switch.
 */
#ifndef SPILLWAY_DATAPLANE_BPF_SUMS_H
#define SPILLWAY_DATAPLANE_BPF_SUMS_H

#include "switch/dataplane/bpf/kernel_helpers.h"
#include "switch/dataplane/bpf/sum_maps.h"
#include "switch/dataplane/sum_frame.h"

/* Set before loading. Without slots the verifier removes all of this. */
const volatile struct spillway_sum_config sum_config = {};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1); /* resized to the config's slots before loading */
  __type(key, __u32);
  __type(value, struct spillway_sum_entry);
} sum_slots SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct spillway_sum_directory);
} sum_directory SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, SPILLWAY_SUM_JOBS);
  __type(key, __u32);
  __type(value, struct spillway_sum_job);
} sum_jobs SEC(".maps");

/* Only user space uses it: the config, for processes that open the maps later. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct spillway_sum_config);
} sum_settings SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, SPILLWAY_SUM_TALLIES);
  __type(key, __u32);
  __type(value, struct spillway_sum_tally);
} sum_tallies SEC(".maps");

/* A packet that is being decided about. It is too large for a program's stack. */
struct sum_draft {
  union spillway_sum_image image;
  struct spillway_sum_route route;
  struct spillway_sum_spread spread;
  struct spillway_sum_copy copy;
};

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct sum_draft);
} sum_drafts SEC(".maps");

/* The verdict on a frame that carries a sum packet. */
enum sum_step {
  SUM_AS_IS = 0,
  SUM_CHANGED = 1, /* forward to its destination */
  SUM_SWAPPED = 2, /* forward what was in the slot, to that sum's owner, perhaps the frame's
                      sender */
  SUM_ABSORBED = 3,
  SUM_UP = 4 /* leave it to tc */
};

/* A frame with a sum packet on its way through the slots. */
struct sum_passage {
  struct spillway_layout layout;
  __u32 bytes;
  __u32 port; /* where it came in */
};

static inline struct spillway_sum_config config_of_sums(void) {
  const struct spillway_sum_config config = {.slots = sum_config.slots,
                                             .lease_us = sum_config.lease_us,
                                             .pools = sum_config.pools,
                                             .policy = sum_config.policy,
                                             .level = sum_config.level};
  return config;
}

/* ------------------------------------------------------------------ jobs and counters */

static inline struct spillway_sum_job* job_in_row(__u32 row) {
  return bpf_map_lookup_elem(&sum_jobs, &row);
}

/* Returns NULL if other jobs hold all rows that this one may use. */
static inline struct spillway_sum_job* job_of_sum(const union spillway_sum_image* image,
                                                  __u64 now_ns, __u32 port) {
  const __u32 zero = 0;
  const __u32 name = spillway_sum_name(image->fields.common.job);
  struct spillway_sum_directory* directory = bpf_map_lookup_elem(&sum_directory, &zero);
  if (directory == 0) {
    return 0;
  }
  const __u32 row = spillway_find_row(directory, name, (__u32)(now_ns >> 30), port);
  struct spillway_sum_job* job = job_in_row(row);
  if (job != 0) {
    spillway_open_job(job, row, name);
  }
  return job;
}

static inline struct spillway_sum_tally* tally_in_row(__u32 row) {
  return bpf_map_lookup_elem(&sum_tallies, &row);
}

/* Moves the counters of the job that had the row before to the row for jobs without one. */
static inline void hand_over(struct spillway_sum_tally* tally, __u32 name) {
  struct spillway_sum_tally* rest = tally_in_row(SPILLWAY_SUM_NO_ROW);
  if (rest != 0) {
    spillway_add_sum_counters(&tally->counters, &rest->counters);
  }
  __builtin_memset(&tally->counters, 0, sizeof(tally->counters));
  tally->name = name;
}

static inline struct spillway_sum_counters* counters_of(__u32 row, __u32 name) {
  struct spillway_sum_tally* tally = tally_in_row(row);
  if (tally == 0) {
    return 0;
  }
  if (tally->name != name) {
    hand_over(tally, name);
  }
  return &tally->counters;
}

static inline void count_outcome(struct spillway_sum_counters* counters, __u8 outcome) {
  if (counters != 0 && outcome < SPILLWAY_SUM_OUTCOMES) {
    counters->outcomes[outcome] += 1;
  }
}

/* `job` is NULL if the job has no row. */
static inline void count_sum(const struct spillway_sum_job* job,
                             const struct spillway_sum_decision* decision) {
  count_outcome(job ? counters_of(job->row, job->name) : counters_of(SPILLWAY_SUM_NO_ROW, 0),
                decision->outcome);
}

static inline void account_sum(struct spillway_sum_job* job,
                               const struct spillway_sum_decision* decision) {
  if (!decision->takes && !decision->frees) {
    return;
  }
  struct spillway_sum_job* freed = job_in_row(decision->row);
  if (freed == 0) {
    return;
  }
  spillway_account_sum(decision, job, freed);
  if (spillway_sum_loses_slot(decision)) {
    struct spillway_sum_counters* counters = counters_of(freed->row, freed->name);
    if (counters != 0) {
      counters->lost_slots += 1;
    }
  }
}

/* ------------------------------------------------------------------ slots */

static inline int step_of(const struct spillway_sum_decision* decision) {
  if (decision->action == SPILLWAY_SUM_ABSORB) {
    return SUM_ABSORBED;
  }
  if (decision->action == SPILLWAY_SUM_TO_MANY) {
    return SUM_UP;
  }
  if (decision->action == SPILLWAY_SUM_SWAP) {
    return SUM_SWAPPED;
  }
  return decision->is_changed ? SUM_CHANGED : SUM_AS_IS;
}

/* Asks the slot and moves the words. Returns 0 if there is no such slot. */
static inline int ask_slot(const struct spillway_sum_config* config,
                           const struct spillway_sum_job* job, const struct spillway_sum_key* key,
                           __u64 now_ns, __u32 slot, __u8* words, struct sum_draft* draft,
                           struct spillway_sum_decision* decision) {
  struct spillway_sum_entry* entry = bpf_map_lookup_elem(&sum_slots, &slot);
  if (entry == 0) {
    return 0;
  }
  bpf_spin_lock(&entry->lock);
  spillway_decide_sum(config, job, key, now_ns, &entry->slot, &draft->image, &draft->route,
                      decision);
  spillway_move_words(entry->slot.words, words, decision->move);
  bpf_spin_unlock(&entry->lock);
  return 1;
}

/* Handles a PART or RESULT with all its words. */
static inline int pass_slot(const struct spillway_sum_config* config, struct spillway_sum_job* job,
                            __u8* data, const __u8* end, const struct sum_passage* passage,
                            __u64 now_ns, struct sum_draft* draft,
                            struct spillway_sum_decision* decision) {
  const struct spillway_layout* layout = &passage->layout;
  const struct spillway_sum_key key = spillway_sum_key_of(&draft->image);
  __u32 slot;
  if (!spillway_place_sum(config, job, &key, &draft->image, now_ns, passage->port, &slot,
                          decision)) {
    return step_of(decision);
  }
  __u8* words = spillway_sum_words_in(data, end, layout);
  if (words == 0 || !ask_slot(config, job, &key, now_ns, slot, words, draft, decision)) {
    return SUM_AS_IS;
  }
  account_sum(job, decision);
  if (decision->action == SPILLWAY_SUM_SWAP) {
    spillway_write_route(data, end, layout, &draft->route);
  }
  if (decision->is_changed) {
    spillway_write_sum(data, end, layout, &draft->image);
  }
  return step_of(decision);
}

/* Handles a packet of a job that has a row. A FLUSH is left to tc. */
static inline int pass_sum(const struct spillway_sum_config* config, struct spillway_sum_job* job,
                           __u8* data, const __u8* end, const struct sum_passage* passage,
                           __u64 now_ns, int has_words, struct sum_draft* draft,
                           struct spillway_sum_decision* decision) {
  if (draft->image.fields.kind == SPILLWAY_SUM_PART) {
    spillway_learn_member(job, &draft->image, &draft->route, passage->port);
  }
  if (!spillway_screen_sum(config, &draft->image, has_words, decision)) {
    return SUM_AS_IS;
  }
  if (draft->image.fields.kind == SPILLWAY_SUM_FLUSH) {
    return SUM_UP;
  }
  return pass_slot(config, job, data, end, passage, now_ns, draft, decision);
}

/* The counters of a job that has a row; NULL if it has none. Most jobs have the first row they may
 * use, and this CPU's counters there show it without a look at the directory. */
static inline struct spillway_sum_counters* known_counters(__u32 name) {
  const __u32 zero = 0;
  struct spillway_sum_tally* tally = tally_in_row(spillway_sum_first_row(name));
  if (tally != 0 && tally->name == name) {
    return &tally->counters;
  }
  const struct spillway_sum_directory* directory = bpf_map_lookup_elem(&sum_directory, &zero);
  const __u32 row = directory ? spillway_known_row(directory, name) : SPILLWAY_SUM_NO_JOB;
  return row == SPILLWAY_SUM_NO_JOB ? 0 : counters_of(row, name);
}

/* Counts a packet that needs no slot, if its job has a row. Returns whether it did. */
static inline int counts_passing(const struct spillway_sum_config* config,
                                 const union spillway_sum_image* head,
                                 const struct spillway_sum_frame* sum) {
  struct spillway_sum_decision decision;
  if (!sum->is_plain || !spillway_passes_by(config, head, sum->has_words, &decision)) {
    return 0;
  }
  struct spillway_sum_counters* counters =
      known_counters(spillway_sum_name(head->fields.common.job));
  count_outcome(counters, decision.outcome);
  return counters != 0;
}

/* Handles all other packets. */
static inline int pass_draft(const struct spillway_sum_config* config, __u8* data, const __u8* end,
                             const struct sum_passage* passage,
                             const struct spillway_sum_frame* sum, struct sum_draft* draft) {
  const __u64 now_ns = bpf_ktime_get_coarse_ns();
  struct spillway_sum_job* job = job_of_sum(&draft->image, now_ns, passage->port);
  struct spillway_sum_decision decision;
  int step = SUM_AS_IS;
  spillway_sum_say(&decision, SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_PAST_IPV6);
  if (sum->is_plain && job == 0) {
    decision.outcome = SPILLWAY_SUM_PAST_JOBS;
  } else if (sum->is_plain && spillway_read_route(data, end, &passage->layout, &draft->route)) {
    step = pass_sum(config, job, data, end, passage, now_ns, sum->has_words, draft, &decision);
  }
  if (step != SUM_UP ||
      decision.outcome == SPILLWAY_SUM_DID_RESULT) { /* a FLUSH is counted by tc */
    count_sum(job, &decision);
  }
  return step;
}

/* Passes a frame, of which [data, end) is in memory, through the slots. */
static inline int pass_slots(__u8* data, const __u8* end, const struct sum_passage* passage,
                             int has_tag_beside) {
  const __u32 zero = 0;
  const struct spillway_sum_config config = config_of_sums();
  union spillway_sum_image head;
  struct spillway_sum_frame sum;
  const __u8* payload =
      spillway_find_sum_head(data, end, passage->bytes, &passage->layout, &head, &sum);
  if (has_tag_beside) {
    sum.is_plain = 0;
  }
  if (payload == 0 || counts_passing(&config, &head, &sum)) {
    return SUM_AS_IS;
  }
  struct sum_draft* draft = bpf_map_lookup_elem(&sum_drafts, &zero);
  if (draft == 0) {
    return SUM_AS_IS;
  }
  spillway_read_sum(data, end, payload, &passage->layout, &draft->image);
  return pass_draft(&config, data, end, passage, &sum, draft);
}

/* Global functions, so that the verifier checks each of them only once. */
__attribute__((noinline)) int spillway_sum_xdp(struct xdp_md* context,
                                               const struct sum_passage* passage) {
  if (!passage) {
    return SUM_AS_IS;
  }
  return pass_slots((__u8*)(long)context->data, (const __u8*)(long)context->data_end, passage, 0);
}

__attribute__((noinline)) int spillway_sum_tc(struct __sk_buff* buffer,
                                              const struct sum_passage* passage) {
  if (!passage) {
    return SUM_AS_IS;
  }
  return pass_slots((__u8*)(long)buffer->data, (const __u8*)(long)buffer->data_end, passage,
                    buffer->vlan_present);
}

/* ------------------------------------------------------------------ results */

/* State of a result that is being copied to many receivers. */
struct spread_passage {
  struct __sk_buff* buffer;
  const struct spillway_sum_job* job;
  struct spillway_layout layout;
  struct sum_draft* draft;
  __u32 copies;
  __u32 tag; /* the VLAN tag beside the frame, encoded as in a route */
};

static long join_copy(__u32 rank, void* argument) {
  struct spread_passage* passage = argument;
  spillway_join_copy(passage->job, rank & (SPILLWAY_SUM_RANKS - 1), &passage->draft->spread,
                     &passage->draft->copy);
  return 0;
}

/* Copies stay within their VLAN, because tags are not rewritten. */
static inline int is_in_vlan(const struct spillway_sum_route* route, __u32 tag) {
  return (__u32)(route->bytes[1] >> 32) == tag;
}

static long send_copy(__u32 index, void* argument) {
  struct spread_passage* passage = argument;
  struct sum_draft* draft = passage->draft;
  const __u32 rank = index & (SPILLWAY_SUM_RANKS - 1);
  if (!spillway_begin_copy(passage->job, rank, &draft->spread, &draft->copy)) {
    return 0;
  }
  const struct spillway_sum_route* route = &passage->job->members[rank].route;
  if (!is_in_vlan(route, passage->tag)) {
    spillway_put_rank(draft->spread.unknown, rank);
    return 0;
  }
  bpf_loop(SPILLWAY_SUM_RANKS, join_copy, passage, 0);
  struct __sk_buff* buffer = passage->buffer;
  __u8* data = (__u8*)(long)buffer->data;
  const __u8* end = (const __u8*)(long)buffer->data_end;
  spillway_dress_copy(&draft->copy, &draft->image);
  spillway_write_sum(data, end, &passage->layout, &draft->image);
  spillway_readdress(data, end, &passage->layout, route);
  if (bpf_clone_redirect(buffer, draft->copy.port, 0) == 0) {
    passage->copies += 1;
  }
  return 0;
}

static inline void count_copies(const struct spread_passage* passage) {
  const __u64* missed = passage->draft->spread.unknown;
  const __u32 unknown = spillway_count_bits(missed[0]) + spillway_count_bits(missed[1]);
  struct spillway_sum_counters* counters = counters_of(passage->job->row, passage->job->name);
  if (counters != 0) {
    counters->copies += passage->copies;
    counters->unknown += unknown;
  }
}

#endif /* SPILLWAY_DATAPLANE_BPF_SUMS_H */
