/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides whether a frame may enter an output port, into which queue, and whether it is marked or
 * trimmed.
 *
 * spillway_admit() decides and changes nothing. A caller that enqueues the frame reports it with
 * spillway_enqueued() (scheduling.h) and may count every decision with spillway_count(). A Spillway
 * port gives up unimportant data first (early drop), then the tails of frames that do not fit
 * (trim). It drops short and trimmed frames last, when the control queue is full.
 *
 * The config must be one that spillway::dataplane::validate() accepts. Constant time, no loops, no
 * 64-bit division. `random` is a uniform 32-bit word; only ECN ports use it.
 */
#ifndef SPILLWAY_DATAPLANE_ADMISSION_H
#define SPILLWAY_DATAPLANE_ADMISSION_H

#include "switch/dataplane/port.h"

/* True for TRIM and SPILLWAY ports, the ones with a control queue. */
static inline int spillway_port_trims(const struct spillway_port_config* config) {
  return config->mode == SPILLWAY_PORT_TRIM || config->mode == SPILLWAY_PORT_SPILLWAY;
}

/* The queue a frame belongs to while there is room. In a valid config the masks change nothing;
 * they show the kernel's verifier that the result is a queue. */
static inline __u8 spillway_queue_of(const struct spillway_port_config* config,
                                     const struct spillway_frame* frame) {
  const int is_control = (frame->flags & SPILLWAY_FRAME_CONTROL) != 0;
  if (spillway_port_trims(config) && (is_control || frame->dscp == config->trimmed_dscp)) {
    return SPILLWAY_CONTROL_QUEUE;
  }
  if (is_control) {
    return (__u8)(config->priorities - 1) & (SPILLWAY_DATA_QUEUES - 1);
  }
  return (__u8)(spillway_priority_of_dscp(frame->dscp) * config->priorities / SPILLWAY_PRIORITIES) &
         (SPILLWAY_DATA_QUEUES - 1);
}

/* Queue length from which data of this importance is dropped early: early_drop_bytes for importance
 * 0, then equal steps towards the queue's limit. Data of importance SPILLWAY_IMPORTANCE_MARKED and
 * above is never dropped early. */
static inline __u32 spillway_early_drop_from(const struct spillway_port_config* config,
                                             __u8 importance) {
  return config->early_drop_bytes +
         (config->queue_bytes - config->early_drop_bytes) * importance / SPILLWAY_IMPORTANCE_MARKED;
}

/* Probability, out of 65,536, that RED acts on a frame that finds `queued` bytes waiting. */
static inline __u32 spillway_red_probability(const struct spillway_port_config* config,
                                             __u32 queued) {
  if (queued >= config->red_max_bytes) {
    return 65536;
  }
  if (queued < config->red_min_bytes) {
    return 0;
  }
  const __u32 span = config->red_max_bytes - config->red_min_bytes;
  /* Scaled so that the division stays within 32 bits, with at least 12 bits of the span left. */
  const __u32 shift = span >= (1U << 24) ? 12 : span >= (1U << 20) ? 8 : span >= (1U << 16) ? 4 : 0;
  const __u32 passed = ((queued - config->red_min_bytes) >> shift) << 16;
  return passed / (span >> shift) * config->red_max_percent / 100;
}

static inline int spillway_has_room(__u32 queued, __u32 bytes, __u32 limit) {
  return queued + bytes <= limit;
}

static inline void spillway_drop(struct spillway_decision* decision, __u8 reason) {
  decision->verdict = SPILLWAY_DROP;
  decision->reason = reason;
}

/* Enqueues the frame as control, or drops it if the control queue is full. */
static inline void spillway_admit_control(const struct spillway_port_config* config,
                                          const struct spillway_port_state* state,
                                          struct spillway_decision* decision, __u8 reason) {
  decision->queue = SPILLWAY_CONTROL_QUEUE;
  if (!spillway_has_room(state->bytes[SPILLWAY_CONTROL_QUEUE], decision->bytes,
                         config->control_queue_bytes)) {
    spillway_drop(decision, SPILLWAY_REASON_CONTROL_FULL);
    return;
  }
  decision->verdict = SPILLWAY_ENQUEUE;
  decision->reason = reason;
}

/* Decides about a frame that does not fit into its own queue. */
static inline void spillway_admit_overflow(const struct spillway_port_config* config,
                                           const struct spillway_port_state* state,
                                           const struct spillway_frame* frame,
                                           struct spillway_decision* decision) {
  if (!spillway_port_trims(config) || config->trim_bytes == 0 ||
      !(frame->flags & SPILLWAY_FRAME_TRIMMABLE)) {
    spillway_drop(decision, SPILLWAY_REASON_QUEUE_FULL);
    return;
  }
  if (frame->bytes <= config->trim_bytes) {
    spillway_admit_control(config, state, decision, SPILLWAY_REASON_DIVERTED);
    return;
  }
  decision->bytes = config->trim_bytes;
  decision->dscp = config->trimmed_dscp;
  spillway_admit_control(config, state, decision, SPILLWAY_REASON_TRIMMED);
}

/* Sets CE. Returns 0 if the frame is not ECN-capable. */
static inline int spillway_mark(struct spillway_decision* decision) {
  if (decision->ecn == SPILLWAY_ECN_NOT_ECT) {
    return 0;
  }
  decision->ecn = SPILLWAY_ECN_CE;
  decision->reason = SPILLWAY_REASON_MARKED;
  return 1;
}

/* Applies RED or ECN to a frame that fits into its data queue. */
static inline void spillway_admit_data(const struct spillway_port_config* config, __u32 queued,
                                       __u32 random, struct spillway_decision* decision) {
  if (config->mode == SPILLWAY_PORT_ECN) {
    if ((random >> 16) < spillway_red_probability(config, queued) && !spillway_mark(decision)) {
      spillway_drop(decision, SPILLWAY_REASON_RED);
    }
  } else if (spillway_port_trims(config) && config->ecn_bytes != 0 && queued >= config->ecn_bytes) {
    spillway_mark(decision);
  }
}

static inline int spillway_drops_early(const struct spillway_port_config* config, __u32 queued,
                                       const struct spillway_frame* frame) {
  return config->mode == SPILLWAY_PORT_SPILLWAY && config->early_drop_bytes != 0 &&
         (frame->flags & SPILLWAY_FRAME_TRIMMABLE) &&
         frame->importance < SPILLWAY_IMPORTANCE_MARKED &&
         queued >= spillway_early_drop_from(config, frame->importance);
}

/* Admits a frame unchanged. */
static inline void spillway_let_in(const struct spillway_frame* frame, __u8 queue,
                                   struct spillway_decision* decision) {
  decision->bytes = frame->bytes;
  decision->verdict = SPILLWAY_ENQUEUE;
  decision->reason = SPILLWAY_REASON_ADMITTED;
  decision->queue = queue;
  decision->home = queue;
  decision->dscp = frame->dscp;
  decision->ecn = frame->ecn;
}

static inline void spillway_admit(const struct spillway_port_config* config,
                                  const struct spillway_port_state* state,
                                  const struct spillway_frame* frame, __u32 random,
                                  struct spillway_decision* decision) {
  const __u8 queue = spillway_queue_of(config, frame);
  const __u32 queued = state->bytes[queue];
  spillway_let_in(frame, queue, decision);
  if (queue == SPILLWAY_CONTROL_QUEUE) {
    spillway_admit_control(config, state, decision, SPILLWAY_REASON_ADMITTED);
  } else if (spillway_drops_early(config, queued, frame)) {
    spillway_drop(decision, SPILLWAY_REASON_EARLY);
  } else if (!spillway_has_room(queued, frame->bytes, config->queue_bytes)) {
    spillway_admit_overflow(config, state, frame, decision);
  } else {
    spillway_admit_data(config, queued, random, decision);
  }
}

static inline void spillway_count(struct spillway_port_counters* counters,
                                  const struct spillway_frame* frame,
                                  const struct spillway_decision* decision) {
  const __u8 reason = decision->reason & (SPILLWAY_REASONS - 1);
  const __u8 importance = frame->importance & (SPILLWAY_PRIORITIES - 1);
  counters->packets[reason] += 1;
  counters->bytes[reason] += frame->bytes;
  if (decision->home < SPILLWAY_QUEUES) {
    counters->by_class[decision->home][reason] += 1;
  }
  if (reason < SPILLWAY_REASON_TRIMMED) {
    return;
  }
  if (decision->verdict == SPILLWAY_DROP && (frame->flags & SPILLWAY_FRAME_CONTROL)) {
    counters->dropped_control += 1;
  } else if (decision->verdict == SPILLWAY_DROP && (frame->flags & SPILLWAY_FRAME_TRIMMABLE)) {
    counters->dropped[importance] += 1;
  } else if (reason == SPILLWAY_REASON_TRIMMED) {
    counters->trimmed[importance] += 1;
  }
}

#endif /* SPILLWAY_DATAPLANE_ADMISSION_H */
