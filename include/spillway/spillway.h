/* SPDX-License-Identifier: Apache-2.0
 *
 * Spillway's C interface, in three parts.
 *
 * Communicators: the ranks of a job exchange data over sockets, as with NCCL. If a rank dies, hangs
 * or leaves, every operation on every rank ends with an error that names it.
 *
 *   spillway_comm_create(&config, &comm)     meets the other ranks
 *   spillway_all_reduce(comm, send, receive, count, SPILLWAY_FLOAT32, SPILLWAY_SUM, NULL, NULL)
 *   spillway_comm_free(comm)
 *
 * Jobs: the set of ranks may change while they train (see below).
 *
 * Packets: gradients as packets that a congested switch may trim, for a transport of your own.
 *
 *   sender                                   receiver
 *   spillway_packetize(values, ...)          spillway_assembly_create(values, ...)
 *   send each spillway_packets_get(...)      spillway_assembly_add(...) each arrival, in any order
 *   spillway_packets_free(...)               spillway_assembly_finish(..., &report)
 *
 * Conventions:
 *  1. Functions that can fail return a spillway_status; outputs are written only on success.
 *  2. spillway_last_error() explains the calling thread's last failure in a sentence.
 *  3. Handles are opaque; the caller frees each with its own *_free function, which accepts NULL.
 *  4. Structs that may grow begin with `size`; set them up with their *_init function. Those of
 *     communicators may be smaller than the library's (an older caller: fields it does not know
 *     have their defaults) or larger (a newer one: fields the library does not know must be 0).
 *  5. Different handles may be used from different threads at once. A single handle is for one
 *     thread at a time, except communicators and requests: only freeing those must be exclusive.
 *  6. Lost, trimmed and damaged packets are not errors: the delivery report counts them.
 *  7. Callbacks run on a thread of the library. They must not block, wait for a request, or free
 *     a communicator; they may start operations and free requests.
 *  8. After fork() a child may not use its parent's communicators (SPILLWAY_INVALID_ARGUMENT). It
 *     may free them, which does not disturb the parent, and may create its own.
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
  SPILLWAY_INTERNAL = 4,         /* the system or the library failed, or memory ran out */
  /* A communicator that returned any of the next four can no longer be used. */
  SPILLWAY_PEER_FAILED = 5, /* a rank died, left or aborted; the message names it */
  SPILLWAY_MISMATCH = 6,    /* ranks did not call the same operations in the same order */
  SPILLWAY_TIMED_OUT = 7,   /* an operation took longer than operation_timeout_ms */
  SPILLWAY_ABORTED = 8,     /* this rank aborted, or freed its communicator too early */
  SPILLWAY_IN_PROGRESS = 9  /* no error: the operation has not ended yet */
} spillway_status;

/* "MAJOR.MINOR.PATCH" of the library. */
SPILLWAY_API const char* spillway_version(void);

/* A short name of a status, such as "invalid-argument". */
SPILLWAY_API const char* spillway_status_name(spillway_status status);

/* Why this thread's last failed call failed, and what to do; "" before any failure. Valid until the
 * thread's next failed call. */
SPILLWAY_API const char* spillway_last_error(void);

/* The value of a variable of docs/environment.md in this process, or its default, which may be
 * empty. `text` receives at most `size` bytes with the terminating zero. `is_set` (may be NULL)
 * becomes 1 if the variable is set and not empty. Invalid values return SPILLWAY_INVALID_ARGUMENT
 * with the same message as spillway_comm_create. */
SPILLWAY_API spillway_status spillway_variable(const char* name, char* text, size_t size,
                                               int* is_set);

/* ======== Communicators ======== */

/* Brings ranks together without a launcher: one rank creates it, the caller sends it to the others,
 * and every rank, the creator included, passes it to spillway_comm_create. */
typedef struct spillway_unique_id {
  uint8_t bytes[128];
} spillway_unique_id;

/* The id holds an address of this host; SPILLWAY_SOCKET_IFNAME chooses the interface. */
SPILLWAY_API spillway_status spillway_unique_id_create(spillway_unique_id* id);
/* Discards an id that no rank will join. */
SPILLWAY_API void spillway_unique_id_discard(const spillway_unique_id* id);

/* This process as its launcher sees it (torchrun, mpirun, srun, a lab, or SPILLWAY_RANK and related
 * variables). For applications whose ranks also meet on their own. */
typedef struct spillway_launch {
  size_t size; /* set to sizeof before the call */
  uint32_t rank;
  uint32_t world;
  int32_t local_rank;  /* among the ranks of this host; -1 if the launcher does not say */
  int32_t local_world; /* -1 if unknown */
  uint32_t port;       /* free for the application at rank 0: the same on all ranks and not used by
                        * Spillway; 0 if unknown */
  char launcher[20];   /* "torchrun", "openmpi", ... */
  char host[256];      /* host of rank 0; "" if unknown */
} spillway_launch;

/* Returns SPILLWAY_UNAVAILABLE and writes nothing if no launcher has set a rank. */
SPILLWAY_API spillway_status spillway_launch_read(spillway_launch* launch);

typedef struct spillway_comm spillway_comm;

/* spillway_comm_config_init sets the defaults, which stand last in the comments below. Fields left
 * at 0, NULL or -1 come from the environment (rank and world from the launcher, then SPILLWAY_*) or
 * from the host. Pointers need to stay valid only during the call. */
typedef struct spillway_comm_config {
  size_t size;
  const spillway_unique_id* id; /* NULL: ranks meet where the launcher or SPILLWAY_COMM_ID says */
  int32_t rank;                 /* only with an id, and only together with `world`; -1 */
  int32_t world;                /* -1 */
  const char* name;             /* in logs and metrics; NULL: "world" */
  uint64_t link_rate;           /* of this host's link, in bits per second; 0 */
  uint32_t mtu;                 /* IP packet size in bytes; 0 */
  int32_t trim_bytes;           /* frame size after a trim, 0 if the fabric does not trim; -1 */
  int32_t threads;              /* compute threads; 0: only the library's own thread; -1 */
  uint32_t peer_timeout_ms;     /* a rank silent for this long is dead; 0: 1400 */
  const uint8_t* secret;        /* 16 to 4096 bytes that all ranks must know; NULL */
  size_t secret_size;
  uint32_t operation_timeout_ms;  /* 300000 */
  uint32_t rendezvous_timeout_ms; /* how long to wait for the other ranks; 0: 60000 */
  int32_t servers;                /* parameter servers (`spillway server`) beside the ranks; -1 */
  int32_t trimmed_target_ppm;     /* over-send: the share of packets to this rank that should arrive
                                   * trimmed so that its link stays full, up to 500000; -1 */
} spillway_comm_config;

/* Writes only the first `size` bytes: the struct as the caller was compiled with it. */
SPILLWAY_API void spillway_comm_config_init_sized(spillway_comm_config* config, size_t size);
/* For callers compiled before `servers` was added: it writes no more than their struct has. All
 * others get the macro. */
SPILLWAY_API void spillway_comm_config_init(spillway_comm_config* config);
#define spillway_comm_config_init(config) \
  spillway_comm_config_init_sized((config), sizeof(*(config)))

/* Returns when all ranks have joined. With `config` NULL everything comes from the environment. */
SPILLWAY_API spillway_status spillway_comm_create(const spillway_comm_config* config,
                                                  spillway_comm** comm);
/* Operations in progress end with SPILLWAY_ABORTED here and with SPILLWAY_PEER_FAILED at the other
 * ranks. Without any, this is a clean close, which still answers unfinished ranks for a moment. If
 * an operation with least_contributors ended here without a late rank, the call waits until that
 * rank has the result, for at most operation_timeout_ms. Requests stay valid. */
SPILLWAY_API void spillway_comm_free(spillway_comm* comm);

SPILLWAY_API uint32_t spillway_comm_rank(const spillway_comm* comm);
SPILLWAY_API uint32_t spillway_comm_world(const spillway_comm* comm);

/* Ends every operation: here with SPILLWAY_ABORTED, at the other ranks with SPILLWAY_PEER_FAILED.
 * `why` may be NULL. Returns at once. */
SPILLWAY_API spillway_status spillway_comm_abort(spillway_comm* comm, const char* why);
/* The status that broke the communicator, explained by spillway_last_error(). SPILLWAY_OK if no
 * operation has failed that way. */
SPILLWAY_API spillway_status spillway_comm_error(const spillway_comm* comm);

/* ---- Operations ----
 *
 * All ranks call a communicator's operations in the same order with the same arguments (buffers,
 * priority, importance, timeout and callback aside). Sends and receives are not part of that order:
 * they match by their two ranks and their tag, and among equals in the order of the calls.
 *
 * If `request` is NULL, a call returns when the operation has ended, with its status. Otherwise it
 * returns at once and the request tells how the operation ended; any number may be in progress.
 * Until it ends the caller must keep its buffers allocated and must not write to them. `send` and
 * `receive` may be the same buffer if their sizes are equal, and NULL where this rank has none. */

typedef enum spillway_data_type {
  SPILLWAY_FLOAT32 = 0,
  SPILLWAY_FLOAT64 = 1,
  SPILLWAY_FLOAT16 = 2,
  SPILLWAY_BFLOAT16 = 3,
  SPILLWAY_INT32 = 4,
  SPILLWAY_INT64 = 5,
  SPILLWAY_INT8 = 6,
  SPILLWAY_UINT8 = 7,
  SPILLWAY_DATA_TYPE_LIMIT = 0x7FFFFFFF /* not a type: lets callers pass any int, to be checked */
} spillway_data_type;

typedef enum spillway_reduction {
  SPILLWAY_SUM = 0,
  SPILLWAY_AVERAGE = 1, /* not for SPILLWAY_INT8 and SPILLWAY_UINT8 */
  SPILLWAY_MIN = 2,
  SPILLWAY_MAX = 3,
  SPILLWAY_PRODUCT = 4,
  SPILLWAY_BIT_AND = 5, /* the three bit operations are for integers only */
  SPILLWAY_BIT_OR = 6,
  SPILLWAY_BIT_XOR = 7,
  SPILLWAY_REDUCTION_LIMIT = 0x7FFFFFFF /* not a reduction */
} spillway_reduction;

/* `from` of spillway_receive: any rank; the first to send is taken and named in the report. */
#define SPILLWAY_ANY_RANK 0xFFFFFFFFu
#define SPILLWAY_MAX_TAG 0xFFFFFFu

typedef enum spillway_algorithm {
  SPILLWAY_ALGORITHM_AUTOMATIC = 0, /* the variable SPILLWAY_ALGORITHM, else the library's choice */
  SPILLWAY_ALGORITHM_DIRECT = 1,    /* every rank owns a shard: one hop to its owner, one back */
  SPILLWAY_ALGORITHM_RING = 2,      /* adds in another order than all the others */
  SPILLWAY_ALGORITHM_TREE = 3,
  SPILLWAY_ALGORITHM_SERVERS = 4, /* same as automatic: used if and only if there are servers */
  SPILLWAY_ALGORITHM_HIERARCHICAL =
      5,                        /* level by level, near ranks first; in even worlds of 4 or more */
  SPILLWAY_ALGORITHM_SWITCH = 6 /* direct, and switches on the path add; only for the codecs levels
                                 * and blocks, which use it by default */
} spillway_algorithm;

/* How the values of a tolerant operation travel. Ranks and switches add levels and blocks without
 * decoding them; results are bit-identical with and without switches that add. docs/algorithms.md
 * and spillway_capabilities() say which codec goes with what. */
typedef enum spillway_codec {
  SPILLWAY_CODEC_PLANES = 0,  /* bit planes, which a congested switch may trim */
  SPILLWAY_CODEC_LEVELS = 1,  /* few levels, rounded at random. Clips large values, so sums shrink a
                               * little without a feedback_tensor */
  SPILLWAY_CODEC_BLOCKS = 2,  /* 32-bit integers with one scale per row: nearly exact; ignores the
                               * precision */
  SPILLWAY_CODEC_ENTROPY = 3, /* integers with one scale per tensor, compressed with what the last
                               * all-reduce of this feedback_tensor taught. Every packet arrives:
                               * needs loss_bound_ppm 0 */
  SPILLWAY_CODEC_SKETCH = 4   /* the same for mostly-zero tensors whose non-zeros keep their places
                               * from step to step. Others travel in a sketch; those that do not fit
                               * it are sent in the next step. Needs a feedback_tensor */
} spillway_codec;

/* The capabilities of each codec, exact operations included: a JSON array of one object per codec,
 * with its name ("codec"), the "operations", "algorithms", element "types" and "reductions" it
 * takes, the types it takes on a GPU ("device_types"), its "bits" per value (empty: ignored), the
 * most "ranks" and "values" (0: no limit of its own), and whether it takes "servers", "encryption",
 * "losses" and "least_contributors". Valid as long as the library is loaded. */
SPILLWAY_API const char* spillway_capabilities(void);

/* Where an operation's buffers are. */
typedef enum spillway_memory {
  SPILLWAY_MEMORY_HOST = 0,
  SPILLWAY_MEMORY_CUDA = 1 /* an NVIDIA GPU, which runs the codec; exact operations copy instead */
} spillway_memory;

/* Checks that this GPU, by its CUDA number, can encode and decode tensors. The first call loads the
 * kernels and may compile them, which takes seconds. Returns SPILLWAY_UNAVAILABLE if something is
 * missing; spillway_last_error() says what. */
SPILLWAY_API spillway_status spillway_cuda_check(uint32_t device);

/* Values for `importance` and `expendable_ppm` of spillway_operation_options. */
#define SPILLWAY_IMPORTANCE_BY_ENERGY 0xFFFFFFFFu
#define SPILLWAY_EXPENDABLE_AS_LOST 0xFFFFFFFFu

/* Called once when the operation has ended and its buffers are free again. `message` is "" on
 * success and valid only during the call. */
typedef void (*spillway_callback)(void* context, spillway_status status, const char* message);

/* The last value of each comment is the default. */
typedef struct spillway_operation_options {
  size_t size;
  uint32_t priority;  /* 0..7, 7 goes first; 3 */
  uint32_t algorithm; /* spillway_algorithm; automatic */

  /* Codecs and loss bounds, for all-reduces of floating-point numbers with sum or average and, with
   * the codecs that spillway_capabilities() lists for them, their halves: reduce-scatters and
   * all-gathers. The fields below are ignored unless `tolerant` is 1. */
  uint32_t tolerant;          /* 0: exact */
  uint32_t precision;         /* bits per value sent to the shard owners, 1 to 32; 16 */
  uint32_t gather_precision;  /* bits per value of the sums sent back, and of an all-gather; 16 */
  uint32_t loss_bound_ppm;    /* share of a contribution's packets that may stay missing; 10000 */
  uint32_t min_planes;        /* bits per value a trimmed packet must keep to count; 1 */
  uint32_t codec;             /* spillway_codec; planes */
  uint64_t feedback_tensor;   /* a tensor's name across steps: whatever part of this rank's values
                               * the sum lacks is added in the next step; 0: it is lost. All ranks
                               * name it or none, and an operation of another kind or size begins
                               * anew */
  double least_contributors;  /* above 0: late ranks are not waited for once this share of the
                               * ranks has contributed; 0 */
  spillway_callback callback; /* NULL */
  void* context;              /* passed to the callback */

  uint32_t tag;        /* for send and receive, up to SPILLWAY_MAX_TAG; 0 */
  uint32_t timeout_ms; /* an operation that takes longer fails and names the ranks it waits for;
                        * 0: operation_timeout_ms */

  /* Tolerant all-reduces; each rank chooses for its own packets. Importance decides what switches
   * drop first; `priority` decides what is sent first. */
  uint32_t importance;     /* 0 to 3: packets are dropped early; 4 to 6: not; 7: must arrive;
                            * SPILLWAY_IMPORTANCE_BY_ENERGY: chosen per packet */
  uint32_t expendable_ppm; /* by energy: the share of a contribution's packets to drop first;
                            * SPILLWAY_EXPENDABLE_AS_LOST: loss_bound_ppm */

  /* Tolerant all-reduces. */
  uint32_t predicts_scale; /* 1, all codecs but planes: takes the scale from the last operation with
                            * this feedback_tensor, which saves a round trip. Values beyond it are
                            * clipped; the rest is added in the next step. 0: ranks agree on it */

  /* Exact all-reduces, and tolerant ones of codecs with "device_types" in spillway_capabilities(),
   * without least_contributors. Each rank chooses for its own buffers. */
  uint32_t memory; /* spillway_memory of send and receive; host */
  uint32_t device; /* CUDA: the GPU's number; 0 */
  uint32_t reserved;
  void* stream; /* CUDA: the cudaStream_t of the caller's work on the buffers. The operation is
                 * ordered behind it; once ended, its result is visible to all streams. NULL: the
                 * default stream */
} spillway_operation_options;

/* Writes only the first `size` bytes: the struct as the caller was compiled with it. */
SPILLWAY_API void spillway_operation_options_init_sized(spillway_operation_options* options,
                                                        size_t size);
/* For callers compiled before the sized function was added: it writes no more than their struct
 * has. All others get the macro. */
SPILLWAY_API void spillway_operation_options_init(spillway_operation_options* options);
#define spillway_operation_options_init(options) \
  spillway_operation_options_init_sized((options), sizeof(*(options)))

/* Checks options for an all-reduce of floating-point numbers. A value out of range returns
 * SPILLWAY_INVALID_ARGUMENT, with the range in spillway_last_error(). Fields that need `tolerant`
 * are checked only if it is 1. NULL stands for the defaults. */
SPILLWAY_API spillway_status
spillway_operation_options_check(const spillway_operation_options* options);

typedef struct spillway_request spillway_request;

/* count elements in, count out. */
SPILLWAY_API spillway_status spillway_all_reduce(spillway_comm* comm, const void* send,
                                                 void* receive, size_t count,
                                                 spillway_data_type type, spillway_reduction op,
                                                 const spillway_operation_options* options,
                                                 spillway_request** request);
/* count elements out; world times as many in. A tolerant one is the first half of a tolerant
 * all-reduce: rank r owns part r, and its sum is not coded again. */
SPILLWAY_API spillway_status spillway_reduce_scatter(spillway_comm* comm, const void* send,
                                                     void* receive, size_t count,
                                                     spillway_data_type type, spillway_reduction op,
                                                     const spillway_operation_options* options,
                                                     spillway_request** request);
/* count elements in; world times as many out. A tolerant one is the second half of a tolerant
 * all-reduce: all ranks, the sender included, get the same bytes of every part, with
 * gather_precision bits per value. Nothing is lost, whatever the loss bound. */
SPILLWAY_API spillway_status spillway_all_gather(spillway_comm* comm, const void* send,
                                                 void* receive, size_t count,
                                                 spillway_data_type type,
                                                 const spillway_operation_options* options,
                                                 spillway_request** request);
/* count elements, in at the root, out everywhere. */
SPILLWAY_API spillway_status spillway_broadcast(spillway_comm* comm, const void* send,
                                                void* receive, size_t count,
                                                spillway_data_type type, uint32_t root,
                                                const spillway_operation_options* options,
                                                spillway_request** request);
/* count elements, in everywhere, out at the root. */
SPILLWAY_API spillway_status spillway_reduce(spillway_comm* comm, const void* send, void* receive,
                                             size_t count, spillway_data_type type,
                                             spillway_reduction op, uint32_t root,
                                             const spillway_operation_options* options,
                                             spillway_request** request);
/* count elements in; world times as many out at the root. */
SPILLWAY_API spillway_status spillway_gather(spillway_comm* comm, const void* send, void* receive,
                                             size_t count, spillway_data_type type, uint32_t root,
                                             const spillway_operation_options* options,
                                             spillway_request** request);
/* count elements out; world times as many in at the root. */
SPILLWAY_API spillway_status spillway_scatter(spillway_comm* comm, const void* send, void* receive,
                                              size_t count, spillway_data_type type, uint32_t root,
                                              const spillway_operation_options* options,
                                              spillway_request** request);
/* count elements for each rank, in and out. */
SPILLWAY_API spillway_status spillway_all_to_all(spillway_comm* comm, const void* send,
                                                 void* receive, size_t count,
                                                 spillway_data_type type,
                                                 const spillway_operation_options* options,
                                                 spillway_request** request);
/* Ends when every rank has called it. */
SPILLWAY_API spillway_status spillway_barrier(spillway_comm* comm,
                                              const spillway_operation_options* options,
                                              spillway_request** request);
/* Ends when the receiver has everything. */
SPILLWAY_API spillway_status spillway_send(spillway_comm* comm, const void* send, size_t count,
                                           spillway_data_type type, uint32_t to,
                                           const spillway_operation_options* options,
                                           spillway_request** request);
/* Takes the oldest message with its tag from its rank (or any rank) that no earlier receive took. A
 * message that nobody receives does not hold up other tags, unless 4,096 more from the same sender
 * to the same receiver follow it. Type and count must match the sender's. */
SPILLWAY_API spillway_status spillway_receive(spillway_comm* comm, void* receive, size_t count,
                                              spillway_data_type type, uint32_t from,
                                              const spillway_operation_options* options,
                                              spillway_request** request);

/* ---- Requests ---- */

/* Waits up to `timeout_ms` and returns how the operation ended, or SPILLWAY_IN_PROGRESS; -1 waits
 * without limit. Once it has ended, its callback has returned as well. */
SPILLWAY_API spillway_status spillway_request_wait(const spillway_request* request,
                                                   int64_t timeout_ms);
/* 1 if the operation has ended, else 0. */
SPILLWAY_API int spillway_request_test(const spillway_request* request);
/* How it ended, or SPILLWAY_IN_PROGRESS. */
SPILLWAY_API spillway_status spillway_request_status(const spillway_request* request);
/* The error message of a failed operation, else "". Valid until the request is freed. */
SPILLWAY_API const char* spillway_request_message(const spillway_request* request);
/* Allowed before the operation has ended; it then goes on. Its buffers must stay valid, and only a
 * callback tells when they are free. */
SPILLWAY_API void spillway_request_free(spillway_request* request);

/* Results of an operation at this rank. Each packet from another rank is counted in exactly one of
 * whole, trimmed and missing. */
typedef struct spillway_operation_report {
  size_t size;          /* set to sizeof before the call */
  uint64_t duration_ns; /* from the call to the end */
  uint64_t packets_whole;
  uint64_t packets_trimmed;
  uint64_t packets_missing;
  uint64_t packets_sent; /* with retransmissions */
  uint64_t packets_repeated;
  uint64_t wire_bytes_sent; /* UDP payload, with retransmissions */
  /* Tolerant all-reduces. */
  uint32_t contributors; /* ranks in the sum of the shard with the fewest, empty shards aside */
  uint32_t empty_shards; /* shards without a sum because their owner was late: zero at all ranks */
  uint32_t peers;        /* ranks for spillway_request_peers, this one included */
  uint32_t algorithm;    /* spillway_algorithm that was used */
  uint32_t source;       /* receives: the sending rank; otherwise SPILLWAY_ANY_RANK */
  uint32_t codec;        /* spillway_codec that was used; 0 for exact operations */
  /* Tolerant all-reduces. */
  uint64_t absent_elements; /* elements that no rank contributed to: zero at all ranks */
  uint32_t absent_ranges;   /* their number of ranges, for spillway_request_absent_range */
  uint32_t shards;          /* their number, for spillway_request_shard_report */
  /* Codecs levels and blocks. The first three count for the shards that this rank owns. */
  uint64_t parts_added;    /* other ranks' parts that switches had already added up */
  uint64_t parts_alone;    /* other ranks' parts that came unadded */
  uint64_t chunks_flushed; /* packet-sized sums whose parts had to be asked for */
  uint64_t values_clipped; /* this rank's values beyond the scale; also for entropy and sketch */
  /* Codecs entropy and sketch: values that this rank encoded itself. */
  uint64_t entropy_values;
  uint64_t entropy_bytes;  /* their encoded size */
  uint64_t entropy_tables; /* messages that had to carry a table */
  /* Codec sketch; the same at all ranks. */
  uint64_t sketch_predicted;   /* values predicted to be non-zero; all in a dense step */
  uint64_t sketch_misses;      /* other values that were non-zero at some rank */
  uint64_t sketch_unrecovered; /* misses in no sum: zero at all ranks, added in the next step */
  /* Time per stage, summed over all pieces, which overlap. GPU stages are timed by the GPU. */
  uint64_t encode_ns;    /* values to messages */
  uint64_t to_host_ns;   /* copies of messages from the GPU */
  uint64_t exchange_ns;  /* from the first message ready to send to the last received */
  uint64_t to_device_ns; /* copies of messages to the GPU */
  uint64_t decode_ns;    /* messages to values, and adding them up */
  uint64_t gpu_wait_ns;  /* waiting for this rank's turn on the GPU */
  uint64_t gpu_bytes;    /* bytes of the tensor that a GPU encoded */
} spillway_operation_report;

/* Results of an operation for one other rank. */
typedef struct spillway_peer_report {
  size_t size; /* in the first entry of an array: set to sizeof before the call */
  uint64_t packets_whole;
  uint64_t packets_trimmed;
  uint64_t packets_missing;
  uint32_t late; /* 1: the operation did not wait for it */
  uint32_t reserved;
} spillway_peer_report;

/* The contributors to one shard of a tolerant all-reduce or, in a reduce-scatter, to this rank's
 * part of all ranks' elements. With least_contributors or feedback_tensor all ranks know them.
 * Otherwise ranks are left out only through losses within the bound, and only the shard's owner
 * knows. */
typedef struct spillway_shard_report {
  size_t size;           /* set to sizeof before the call */
  uint64_t first;        /* element */
  uint64_t count;        /* elements */
  uint32_t owner;        /* rank that added it up */
  uint32_t contributors; /* ranks in the part with the fewest; 0: the shard has no sum */
} spillway_shard_report;

/* Returns SPILLWAY_IN_PROGRESS and writes nothing until the operation has ended. */
SPILLWAY_API spillway_status spillway_request_report(const spillway_request* request,
                                                     spillway_operation_report* report);
/* Writes the entries of ranks 0 to `capacity` - 1, or of all ranks if there is room for more; this
 * rank's own has zeros. Entries are reports[0].size bytes apart. `count` (may be NULL) becomes the
 * number of ranks. `reports` may be NULL if `capacity` is 0. */
SPILLWAY_API spillway_status spillway_request_peers(const spillway_request* request,
                                                    spillway_peer_report* reports,
                                                    uint32_t capacity, uint32_t* count);
/* `shard` goes from 0 to the report's `shards` - 1, in the order of the elements. */
SPILLWAY_API spillway_status spillway_request_shard_report(const spillway_request* request,
                                                           uint32_t shard,
                                                           spillway_shard_report* report);
/* `range` goes from 0 to the report's `absent_ranges` - 1, in order. The range holds elements first
 * to first + count - 1. */
SPILLWAY_API spillway_status spillway_request_absent_range(const spillway_request* request,
                                                           uint32_t range, uint64_t* first,
                                                           uint64_t* count);

/* ======== Jobs whose members change ========
 *
 * If a rank is lost or asked to leave, a standby replaces it, or the others continue without it.
 * Members agree on that among themselves, over connections of their own. Each agreement starts an
 * epoch with new communicators. In NCCL's words: an epoch that ends is revoked, the next one is
 * shrunk or has a replacement, and spillway_job_join() grows the reserve.
 *
 *   spillway_job_found(comm, &config, &job)              all ranks; the last `standbys` wait
 *   spillway_job_comm(job, 0, NULL, 0, &epoch_comm)      of the present epoch
 *   for each step:
 *     spillway_job_step(job, step, work_us, &must_stop)
 *     if must_stop, or an operation has failed:
 *       free the epoch's communicators
 *       spillway_job_park(job, &position, timeout, &change)
 *       spillway_job_comm(job, 0, NULL, 0, &epoch_comm); send the state to ranks without it
 *   spillway_job_finish(job, timeout, &is_done)
 *
 * One thread at a time uses a job, except for spillway_job_ask and spillway_job_interrupted. */

typedef struct spillway_job spillway_job;

#define SPILLWAY_MAX_CHANNELS 8u
#define SPILLWAY_MAX_TICKET 256u

/* The last value of each comment is the default. */
typedef struct spillway_job_config {
  size_t size;
  uint32_t standbys;           /* how many of the founders, the last ones, are standbys; 0 */
  uint32_t channels;           /* communicators per epoch, up to SPILLWAY_MAX_CHANNELS; 1 */
  uint32_t may_shrink;         /* 1: without a standby the others continue without lost ranks; 0 */
  uint32_t min_ranks;          /* fewest ranks that continue; 1 */
  uint32_t silence_ms;         /* a member silent for this long is lost; 0: the rank's timeout */
  uint32_t park_limit_ms;      /* time for a rank to park once it must; 300000 */
  uint32_t straggler_percent;  /* of the ranks' median time; slower ranks are stragglers; 200 */
  uint32_t replace_stragglers; /* 1: as if an operator had asked to move the straggler; 0 */
  uint32_t may_grow;           /* 0: requests to grow are refused; 1 */
  uint32_t reserved;
  const char* ticket_file;          /* rank 0 writes the ticket there; NULL: SPILLWAY_JOB_FILE */
  const spillway_comm_config* comm; /* for each epoch's communicators; its id, rank, world and
                                     * servers are ignored; NULL: from the environment */
} spillway_job_config;
SPILLWAY_API void spillway_job_config_init_sized(spillway_job_config* config, size_t size);
#define spillway_job_config_init(config) spillway_job_config_init_sized((config), sizeof(*(config)))

/* Called by all ranks of `comm`, which may be freed afterwards. */
SPILLWAY_API spillway_status spillway_job_found(spillway_comm* comm,
                                                const spillway_job_config* config,
                                                spillway_job** job);
/* For a process that joins later and becomes a standby. `ticket` comes from spillway_job_ticket at
 * any member. */
SPILLWAY_API spillway_status spillway_job_join(const char* ticket,
                                               const spillway_job_config* config,
                                               spillway_job** job);
SPILLWAY_API void spillway_job_free(spillway_job* job);

/* The ticket by which other processes find the job: "10.0.0.3:41234,10.0.0.4:52000/3f09...". `text`
 * has room for SPILLWAY_MAX_TICKET bytes. */
SPILLWAY_API spillway_status spillway_job_ticket(const spillway_job* job, char* text, size_t size);

typedef struct spillway_job_change {
  size_t size;      /* set to sizeof before the call */
  uint32_t ends;    /* 1: the job, or this process's part in it, has ended; see `why` */
  uint32_t epoch;   /* 1 for the founders' */
  int32_t rank;     /* -1: now a standby */
  uint32_t world;   /* ranks, without standbys */
  uint64_t step;    /* all ranks continue at the beginning of this step */
  uint32_t sources; /* how many ranks have that step's state (spillway_job_sources) */
  uint32_t is_done; /* 1: it ended normally: all steps are done, or it was asked to end */
  /* When this process was told to stop, had parked, and learned the decision: wall clock. */
  int64_t interrupted_ns;
  int64_t parked_ns;
  int64_t decided_ns;
  char why[512];
} spillway_job_change;

/* The change a founder starts with. A process that joined later gets SPILLWAY_UNAVAILABLE and calls
 * spillway_job_park instead. */
SPILLWAY_API spillway_status spillway_job_first_change(const spillway_job* job,
                                                       spillway_job_change* change);

/* Call this before each step. The previous step took `work_us` of this rank's own time, without
 * waits for others. `must_stop` becomes 1 if the step must not begin. */
SPILLWAY_API spillway_status spillway_job_step(spillway_job* job, uint64_t step, uint64_t work_us,
                                               int* must_stop);
/* 1: training must stop at once; the epoch's communicators have already been aborted. */
SPILLWAY_API int spillway_job_interrupted(const spillway_job* job);

typedef struct spillway_job_position {
  size_t size;
  uint32_t has_state; /* a standby has none */
  uint32_t is_warm;   /* 1: this standby's first step costs nothing extra */
  uint64_t step;      /* the state is that at the beginning of this step */
} spillway_job_position;

/* Reports that training has stopped here. Returns when the next epoch is decided, or after
 * `timeout_ms` with SPILLWAY_IN_PROGRESS; then call it again. A standby hears only when it is
 * called in or released. */
SPILLWAY_API spillway_status spillway_job_park(spillway_job* job,
                                               const spillway_job_position* position,
                                               uint32_t timeout_ms, spillway_job_change* change);
/* The ranks with the last change's state: at most `count` are written. */
SPILLWAY_API spillway_status spillway_job_sources(const spillway_job* job, uint32_t* ranks,
                                                  uint32_t count);
/* Creates a communicator of the last change's epoch among `ranks`, this one included, or among all
 * ranks if `count` is 0. No message is exchanged. Call it once per channel and epoch, with the same
 * ranks at all of them. It is aborted when training must stop. */
SPILLWAY_API spillway_status spillway_job_comm(spillway_job* job, uint32_t channel,
                                               const uint32_t* ranks, uint32_t count,
                                               spillway_comm** comm);

/* Reports that all steps are done here. `is_done` becomes 1 when every rank is done, and 0 when an
 * unfinished rank was lost: then park. Returns SPILLWAY_IN_PROGRESS after `timeout_ms`. */
SPILLWAY_API spillway_status spillway_job_finish(spillway_job* job, uint32_t timeout_ms,
                                                 int* is_done);
/* This process leaves at once; the others learn it without waiting for a timeout. */
SPILLWAY_API spillway_status spillway_job_leave(spillway_job* job);
/* Questions: "status" (one JSON object), "move RANK...", "remove RANK...", "grow COUNT", "end"; the
 * tool `spillway job` asks the same. Callable from any thread. */
SPILLWAY_API spillway_status spillway_job_ask(spillway_job* job, const char* question,
                                              uint32_t timeout_ms, char* answer, size_t size);

/* ======== Packets ======== */

typedef enum spillway_estimate {
  SPILLWAY_ESTIMATE_UNBIASED = 0,     /* right on average: for sums over workers */
  SPILLWAY_ESTIMATE_MINIMUM_ERROR = 1 /* closest: for one reader, or with error feedback */
} spillway_estimate;

/* How values become packets. Sender and receiver must use the same options. Numbers at the end of
 * comments are defaults. */
typedef struct spillway_packet_options {
  size_t size; /* of this struct, set by spillway_packet_options_init */

  /* The network. */
  uint32_t mtu;        /* 1500 */
  uint32_t trim_bytes; /* size of a trimmed frame from its Ethernet header; 0: no trimming. 206 */
  uint32_t ip_version; /* 4 */

  /* The code. */
  uint32_t precision; /* bits per value, 1..32; 16 */
  uint32_t row_log2;  /* log2 of the rotated row's length, 8..15; 13 */
  uint32_t estimate;  /* spillway_estimate, receiver only */

  /* Identity of the message. `seed` is shared by a job's workers and by nobody else. The fields
   * from `operation` to `phase` name the message: no two in a job and epoch may agree in all of
   * them. */
  uint16_t job;
  uint64_t epoch;
  uint64_t seed;
  uint64_t operation; /* the operation's number */
  uint64_t signature; /* of its arguments, or anything else that tells operations apart */
  uint16_t piece;     /* which part of the operation's data */
  uint16_t source;    /* rank that sends it */
  uint8_t phase;      /* 0 reduce, 1 gather, 2 note, 3 point-to-point */
  uint8_t priority;   /* 0..7, how urgent */
  uint8_t importance; /* 0..7, how little of it may be lost */

  /* Packets carry tags. With a key (at least 16 bytes) only its holders can make them; without
   * one, anybody who knows the fields above can. */
  const uint8_t* key;
  size_t key_size;
  uint8_t encrypt; /* encrypts scale and values; needs a key. Two messages under one key must never
                    * agree in all the fields above */
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
  SPILLWAY_OUTCOME_REFUSED = 4    /* damaged, foreign or inconsistent; ignored */
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
  uint64_t corrupt_tails;   /* accepted without a tail that failed its check */
  uint64_t lost_rows;       /* rows without any packet: decoded to zero */
  uint64_t non_finite_rows; /* rows that held a NaN or an infinity: decoded to NaN */
  double lost_fraction;     /* share of coordinates that did not arrive */
  double trimmed_fraction;  /* share of coordinates that arrived trimmed */
} spillway_delivery_report;

/* Receives into `values`, which must outlive the assembly and is undefined before finish. */
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
