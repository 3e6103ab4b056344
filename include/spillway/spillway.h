/* SPDX-License-Identifier: Apache-2.0
 *
 * Spillway's C interface: gradients as packets that a congested switch may cut.
 *
 *   sender                                   receiver
 *   spillway_packetize(values, ...)          spillway_assembly_create(values, ...)
 *   send each spillway_packets_get(...)      spillway_assembly_add(...) what comes, in any order
 *   spillway_packets_free(...)               spillway_assembly_finish(..., &report)
 *
 * Conventions:
 *  1. Functions that can fail return a spillway_status; outputs are written only on success.
 *  2. spillway_last_error() explains the calling thread's last failure in a sentence.
 *  3. Handles are opaque; the caller frees each with its own *_free function, NULL included.
 *  4. Structs that may grow begin with `size`; set them up with their *_init function.
 *  5. Different handles may be used from different threads at once, one handle from one at a time.
 *  6. Lost, trimmed and damaged packets are not errors: the delivery report counts them.
 */
#ifndef SPILLWAY_SPILLWAY_H
#define SPILLWAY_SPILLWAY_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SPILLWAY_API __attribute__((visibility("default")))
#else
#define SPILLWAY_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum spillway_status {
  SPILLWAY_OK = 0,
  SPILLWAY_INVALID_ARGUMENT = 1, /* the call is wrong as written */
  SPILLWAY_LIMIT_EXCEEDED = 2,   /* a named limit would be passed */
  SPILLWAY_UNAVAILABLE = 3,      /* this machine or build lacks what was asked for */
  SPILLWAY_INTERNAL = 4          /* something underneath failed; out of memory included */
} spillway_status;

/* "MAJOR.MINOR.PATCH" of the library. */
SPILLWAY_API const char* spillway_version(void);

/* A short name of a status, such as "invalid-argument". */
SPILLWAY_API const char* spillway_status_name(spillway_status status);

/* What went wrong in this thread's last failed call, and what to do; "" before any. Valid until the
 * thread's next failed call. */
SPILLWAY_API const char* spillway_last_error(void);

typedef enum spillway_estimate {
  SPILLWAY_ESTIMATE_UNBIASED = 0,     /* right on average: for sums over workers */
  SPILLWAY_ESTIMATE_MINIMUM_ERROR = 1 /* closest: for one reader, or with error feedback */
} spillway_estimate;

/* How values become packets. Sender and receiver must use the same options. */
typedef struct spillway_packet_options {
  size_t size; /* of this struct, set by spillway_packet_options_init */

  /* The fabric. */
  uint32_t mtu;        /* 1500 */
  uint32_t trim_bytes; /* size of a trimmed frame from its Ethernet header; 0: not trimmed. 206 */
  uint32_t ip_version; /* 4 */

  /* The code. */
  uint32_t precision; /* bits per value, 1..32; 16 */
  uint32_t row_log2;  /* log2 of the rotated row's length, 8..15; 13 */
  uint32_t estimate;  /* spillway_estimate, receiver only */

  /* Who talks to whom about what. `seed` is shared by a job's workers and by nobody else's. */
  uint16_t job;
  uint16_t epoch;
  uint64_t seed;
  uint32_t step;
  uint16_t bucket;
  uint16_t shard;
  uint16_t source;
  uint8_t phase;      /* 0 reduce, 1 gather, 2 broadcast, 3 point to point */
  uint8_t priority;   /* 0..7, how urgent */
  uint8_t importance; /* 0..7, how little of it may be lost */

  /* With a key (at least 16 bytes) packets carry keyed tags; without one CRC32C. */
  const uint8_t* key;
  size_t key_size;
} spillway_packet_options;

SPILLWAY_API void spillway_packet_options_init(spillway_packet_options* options);

/* ---- Sender ---- */

typedef struct spillway_packets spillway_packets;

SPILLWAY_API spillway_status spillway_packetize(const float* values, size_t count,
                                                const spillway_packet_options* options,
                                                spillway_packets** packets);
SPILLWAY_API size_t spillway_packets_count(const spillway_packets* packets);
/* The UDP payload of one packet; valid until the packets are freed. */
SPILLWAY_API spillway_status spillway_packets_get(const spillway_packets* packets, size_t index,
                                                  const uint8_t** bytes, size_t* size);
SPILLWAY_API void spillway_packets_free(spillway_packets* packets);

/* ---- Receiver ---- */

typedef struct spillway_assembly spillway_assembly;

typedef enum spillway_outcome {
  SPILLWAY_OUTCOME_WHOLE = 0,
  SPILLWAY_OUTCOME_TRIMMED = 1,
  SPILLWAY_OUTCOME_IMPROVED = 2,  /* replaced a shorter copy of itself */
  SPILLWAY_OUTCOME_DUPLICATE = 3, /* brought nothing new */
  SPILLWAY_OUTCOME_REFUSED = 4    /* damaged, foreign or inconsistent: changed nothing */
} spillway_outcome;

/* Every expected packet is in exactly one of whole, trimmed and missing. */
typedef struct spillway_delivery_report {
  size_t size; /* set to sizeof before the call */
  uint64_t expected;
  uint64_t whole;
  uint64_t trimmed;
  uint64_t missing;
  uint64_t duplicates;
  uint64_t refused;
  uint64_t corrupt_tails;   /* taken, less a tail that failed its check */
  uint64_t lost_rows;       /* nothing of them came: zero */
  uint64_t non_finite_rows; /* held a NaN or an infinity: NaN */
  double lost_fraction;     /* of coordinates */
  double trimmed_fraction;  /* of coordinates */
} spillway_delivery_report;

/* Receives into `values`, which must outlive the assembly and means nothing before finish. */
SPILLWAY_API spillway_status spillway_assembly_create(float* values, size_t count,
                                                      const spillway_packet_options* options,
                                                      spillway_assembly** assembly);
/* Hands in one UDP payload as it arrived. `outcome` may be NULL. */
SPILLWAY_API spillway_status spillway_assembly_add(spillway_assembly* assembly,
                                                   const uint8_t* bytes, size_t size,
                                                   spillway_outcome* outcome);
/* Completes `values`; `report` may be NULL. Nothing can be added afterwards. */
SPILLWAY_API spillway_status spillway_assembly_finish(spillway_assembly* assembly,
                                                      spillway_delivery_report* report);
SPILLWAY_API void spillway_assembly_free(spillway_assembly* assembly);

#ifdef __cplusplus
}
#endif

#endif /* SPILLWAY_SPILLWAY_H */
