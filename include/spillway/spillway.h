/* SPDX-License-Identifier: Apache-2.0
 *
 * Spillway's C interface, in three parts.
 *
 * Communicators: the ranks of a job work together over sockets, as with NCCL. A rank that dies,
 * hangs or leaves ends every operation everywhere with an error that names it.
 *
 *   spillway_comm_create(&config, &comm)     meets the other ranks
 *   spillway_all_reduce(comm, send, receive, count, SPILLWAY_FLOAT32, SPILLWAY_SUM, NULL, NULL)
 *   spillway_comm_free(comm)
 *
 * Jobs: who the ranks are may change while they train (below).
 *
 * Packets: gradients as packets that a congested switch may cut, for a transport of your own.
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
 *  4. Structs that may grow begin with `size`; set them up with their *_init function. Those of
 *     communicators may be smaller than the library's (an older caller: fields it does not know
 *     have their defaults) or larger (a newer one: fields the library does not know must be 0).
 *  5. Different handles may be used from different threads at once, one handle from one at a time;
 *     communicators and requests from any number of threads, but to free them.
 *  6. Lost, trimmed and damaged packets are not errors: the delivery report counts them.
 *  7. Callbacks come on a thread of the library. They must not block, wait for a request, or free
 *     a communicator; they may start operations and free requests.
 *  8. After fork() a child may not use its parent's communicators (SPILLWAY_INVALID_ARGUMENT), but
 *     may free them, which does not disturb the parent, and may make its own.
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
  SPILLWAY_INTERNAL = 4,         /* something underneath failed; out of memory included */
  /* Of communicators: one that gave any of the next four is of no use any more. */
  SPILLWAY_PEER_FAILED = 5, /* a rank died, left or aborted; the message names it */
  SPILLWAY_MISMATCH = 6,    /* ranks do not call the same operations in the same order */
  SPILLWAY_TIMED_OUT = 7,   /* an operation took longer than operation_timeout_ms */
  SPILLWAY_ABORTED = 8,     /* this rank aborted, or freed its communicator too early */
  SPILLWAY_IN_PROGRESS = 9  /* no error: the operation has not ended yet */
} spillway_status;

/* "MAJOR.MINOR.PATCH" of the library. */
SPILLWAY_API const char* spillway_version(void);

/* A short name of a status, such as "invalid-argument". */
SPILLWAY_API const char* spillway_status_name(spillway_status status);

/* What went wrong in this thread's last failed call, and what to do; "" before any. Valid until the
 * thread's next failed call. */
SPILLWAY_API const char* spillway_last_error(void);

/* A variable of docs/environment.md as this process has it: what is set, or else the default, which
 * may be empty. `text` gets at most `size` bytes, the zero at its end included; `is_set`, which may
 * be NULL, 1 where it is set and not empty. A value that is not allowed is
 * SPILLWAY_INVALID_ARGUMENT, with the sentence that spillway_comm_create has for it. */
SPILLWAY_API spillway_status spillway_variable(const char* name, char* text, size_t size,
                                               int* is_set);

/* ======== Communicators ======== */

/* What brings ranks together where no launcher does: one rank makes it, the caller carries it to
 * the others, and every rank, the maker included, hands it to spillway_comm_create. */
typedef struct spillway_unique_id {
  uint8_t bytes[128];
} spillway_unique_id;

/* The id holds an address of this host; SPILLWAY_SOCKET_IFNAME says on which interface. */
SPILLWAY_API spillway_status spillway_unique_id_create(spillway_unique_id* id);
/* Gives up an id that nobody will join. */
SPILLWAY_API void spillway_unique_id_discard(const spillway_unique_id* id);

/* What the launcher (torchrun, mpirun, srun, a lab, or SPILLWAY_RANK and its kin) told this
 * process, for applications whose ranks meet by means of their own. */
typedef struct spillway_launch {
  size_t size; /* set to sizeof before the call */
  uint32_t rank;
  uint32_t world;
  int32_t local_rank;  /* among the ranks of this machine; -1 where the launcher does not say */
  int32_t local_world; /* -1 */
  uint32_t port;       /* for the application's own use at rank 0: the same at all ranks, none of
                        * Spillway's; 0 where nothing says so */
  char launcher[20];   /* "torchrun", "openmpi", ... */
  char host[256];      /* where rank 0 is; "" where nothing says so */
} spillway_launch;

/* SPILLWAY_UNAVAILABLE, and nothing written, where no launcher has set a rank. */
SPILLWAY_API spillway_status spillway_launch_read(spillway_launch* launch);

typedef struct spillway_comm spillway_comm;

/* What bounds the data on its way to a rank. */
typedef enum spillway_window {
  SPILLWAY_WINDOW_AUTOMATIC = 0, /* as SPILLWAY_WINDOW says */
  SPILLWAY_WINDOW_SPILLWAY = 1,
  SPILLWAY_WINDOW_DCTCP = 2,
  SPILLWAY_WINDOW_TIMELY = 3
} spillway_window;

/* What is 0, NULL or -1 here by spillway_comm_config_init is taken from the environment (rank and
 * world as the launcher set them, then SPILLWAY_*) or from the machine. Pointers need to last for
 * the call only. */
typedef struct spillway_comm_config {
  size_t size;
  const spillway_unique_id* id; /* NULL: ranks meet where the launcher or SPILLWAY_COMM_ID says */
  int32_t rank;                 /* -1. With an id only: both, or neither */
  int32_t world;                /* -1 */
  const char* name;             /* in logs and metrics; NULL: "world" */
  uint64_t link_rate;           /* bits per second of this host's link; 0 */
  uint32_t mtu;                 /* of IP packets; 0 */
  int32_t trim_bytes;           /* to which the fabric cuts frames, 0 for not at all; -1 */
  int32_t threads;              /* that calculate, 0 for none beside the library's one; -1 */
  uint32_t peer_timeout_ms;     /* after so long a silent rank is dead; 0: 1400 */
  const uint8_t* secret;        /* 16 to 4096 bytes, which ranks prove to know; NULL */
  size_t secret_size;
  uint32_t operation_timeout_ms;  /* 300000 */
  uint32_t rendezvous_timeout_ms; /* how long to wait for the other ranks; 0: 60000 */
  int32_t servers;                /* parameter servers (`spillway ps`) beside the ranks; -1 */
  uint32_t window;                /* spillway_window; 0 */
  int32_t trimmed_target_ppm;     /* over-send: of this rank's packets from others, those that shall
                                   * arrive trimmed so that its link is full, up to 500000; -1 */
  uint32_t reserved;              /* 0 */
} spillway_comm_config;

/* Writes the beginning of a struct of `size` bytes, as the caller knows it. */
SPILLWAY_API void spillway_comm_config_init_sized(spillway_comm_config* config, size_t size);
/* For callers that were compiled before `servers` came: writes no more than they have. All others
 * mean the macro. */
SPILLWAY_API void spillway_comm_config_init(spillway_comm_config* config);
#define spillway_comm_config_init(config) \
  spillway_comm_config_init_sized((config), sizeof(*(config)))

/* Returns when all ranks are there. `config` may be NULL: all from the environment. */
SPILLWAY_API spillway_status spillway_comm_create(const spillway_comm_config* config,
                                                  spillway_comm** comm);
/* Ends operations under way with SPILLWAY_ABORTED, here and at the other ranks; without any it is a
 * clean close, which answers ranks that are not done yet for a moment. Ranks that are late for an
 * operation with least_contributors that ended here without them are waited for until they have its
 * result, for operation_timeout_ms at most. Requests stay valid. */
SPILLWAY_API void spillway_comm_free(spillway_comm* comm);

SPILLWAY_API uint32_t spillway_comm_rank(const spillway_comm* comm);
SPILLWAY_API uint32_t spillway_comm_world(const spillway_comm* comm);

/* Ends every operation, here with SPILLWAY_ABORTED, at the other ranks with SPILLWAY_PEER_FAILED.
 * `why` may be NULL. Returns at once. */
SPILLWAY_API spillway_status spillway_comm_abort(spillway_comm* comm, const char* why);
/* What broke the communicator, with the sentence in spillway_last_error(); SPILLWAY_OK as long as
 * no operation has ended because it is broken. */
SPILLWAY_API spillway_status spillway_comm_error(const spillway_comm* comm);

/* ---- Operations ----
 *
 * All ranks call a communicator's operations in the same order with the same arguments (buffers,
 * priority, importance, timeout and callback aside). Sends and receives are outside of that order:
 * they match by their two ranks and their tag, in the order of the calls among those that have them
 * alike.
 *
 * With `request` NULL a call returns when the operation has ended, with its status. Otherwise it
 * returns at once, any number of operations may be under way, and the request says how it ended.
 * Buffers must last, and only be looked at, until then. `send` and `receive` may be the same buffer
 * where they are of the same size, and NULL where this rank has none. */

typedef enum spillway_data_type {
  SPILLWAY_FLOAT32 = 0,
  SPILLWAY_FLOAT64 = 1,
  SPILLWAY_FLOAT16 = 2,
  SPILLWAY_BFLOAT16 = 3,
  SPILLWAY_INT32 = 4,
  SPILLWAY_INT64 = 5,
  SPILLWAY_INT8 = 6,
  SPILLWAY_UINT8 = 7,
  SPILLWAY_DATA_TYPE_LIMIT = 0x7FFFFFFF /* no type: any int may be handed in, and is looked at */
} spillway_data_type;

typedef enum spillway_reduction {
  SPILLWAY_SUM = 0,
  SPILLWAY_AVERAGE = 1, /* not of SPILLWAY_INT8 and SPILLWAY_UINT8 */
  SPILLWAY_MIN = 2,
  SPILLWAY_MAX = 3,
  SPILLWAY_PRODUCT = 4,
  SPILLWAY_BIT_AND = 5, /* these three of integers alone */
  SPILLWAY_BIT_OR = 6,
  SPILLWAY_BIT_XOR = 7,
  SPILLWAY_REDUCTION_LIMIT = 0x7FFFFFFF /* no reduction */
} spillway_reduction;

/* As `from` of spillway_receive: whichever rank sends first; the report says which. */
#define SPILLWAY_ANY_RANK 0xFFFFFFFFu
#define SPILLWAY_MAX_TAG 0xFFFFFFu

typedef enum spillway_algorithm {
  SPILLWAY_ALGORITHM_AUTOMATIC = 0, /* as SPILLWAY_ALGORITHM says, else by size and ranks */
  SPILLWAY_ALGORITHM_DIRECT = 1,    /* every rank owns a shard: one hop to its owner, one back */
  SPILLWAY_ALGORITHM_RING = 2,
  SPILLWAY_ALGORITHM_TREE = 3,
  SPILLWAY_ALGORITHM_SERVERS = 4, /* as automatic: used where, and only where, there are servers */
  SPILLWAY_ALGORITHM_LEVELS = 5,  /* in racks and between them; needs SPILLWAY_RACK_RANKS */
  SPILLWAY_ALGORITHM_SWITCH = 6   /* as direct, and switches on the way add; of the codes thc and
                                   * blocks, which go this way of themselves */
} spillway_algorithm;

/* How the values of a tolerant all-reduce travel. Sums of thc and blocks can be formed without
 * decoding, by switches as well: among up to 128 ranks, parameter servers included, with packets of
 * 1,500 bytes, and not where packets are encrypted. Results are the same bits with switches that
 * add as without. */
typedef enum spillway_code {
  SPILLWAY_CODE_PLANES = 0, /* bit planes, which a congested switch may cut */
  SPILLWAY_CODE_THC = 1,    /* few levels, rounded at random: a precision of 2, 3, 4 or 8 */
  SPILLWAY_CODE_BLOCKS = 2, /* whole numbers of 32 bits, a scale per row: loses next to nothing;
                             * the precision has no say */
  SPILLWAY_CODE_CODED = 3,  /* whole numbers of a precision of 2 to 16 bits, one scale per tensor,
                             * coded as short as they come by what the last all-reduce with this
                             * feedback_tensor taught. Arrive whole: with a loss_bound_ppm of 0; by
                             * direct exchange or round a ring, up to 256 ranks, no servers */
  SPILLWAY_CODE_SKETCH = 4  /* the same of tensors that are mostly zero, in the same places of one
                             * step as of the last: what is elsewhere goes by a sketch, and what
                             * that has no room for comes in the next. Needs a feedback_tensor */
} spillway_code;

/* Where an operation's memory is. */
typedef enum spillway_memory {
  SPILLWAY_MEMORY_HOST = 0,
  SPILLWAY_MEMORY_CUDA = 1 /* an NVIDIA GPU's, which codes what is in it; what is exact is copied */
} spillway_memory;

/* Whether tensors of that GPU, as CUDA counts them, can be coded there. The first call loads what
 * that takes, and may compile it, which takes seconds. SPILLWAY_UNAVAILABLE where something is
 * missing; spillway_last_error() says what. */
SPILLWAY_API spillway_status spillway_cuda_check(uint32_t device);

/* As `importance` and `expendable_ppm` of spillway_operation_options. */
#define SPILLWAY_IMPORTANCE_BY_ENERGY 0xFFFFFFFFu
#define SPILLWAY_EXPENDABLE_AS_LOST 0xFFFFFFFFu

/* Called once when the operation has ended; its buffers are free. `message` is "" on success and
 * lasts for the call. */
typedef void (*spillway_callback)(void* context, spillway_status status, const char* message);

typedef struct spillway_operation_options {
  size_t size;
  uint32_t priority;  /* 0..7, 7 goes first; 3 */
  uint32_t algorithm; /* spillway_algorithm; automatic */

  /* All-reduces of floating-point numbers, sum or average: how much may be lost. The fields below
   * mean something only with `tolerant` 1. */
  uint32_t tolerant;          /* 0: exact */
  uint32_t precision;         /* bits per value on the way to the sums, 1 to 32; 16 */
  uint32_t gather_precision;  /* and on the way back; 16 */
  uint32_t loss_bound_ppm;    /* of a contribution's packets that may stay missing; 10000 */
  uint32_t min_planes;        /* a trimmed packet must keep so many bits per value to count; 1 */
  uint32_t lossy_gather;      /* 1: sums may come back with losses, so ranks may drift apart; 0 */
  uint64_t feedback_tensor;   /* a tensor's name across steps: what of this rank's part did not get
                               * into the sum is added to its next; 0: it is lost. At all ranks or
                               * at none */
  double least_contributors;  /* above 0: late ranks are not waited for, as long as this share of
                               * them is there; 0 */
  spillway_callback callback; /* NULL */
  void* context;              /* handed to it */

  uint32_t tag;        /* of send and receive, up to SPILLWAY_MAX_TAG; 0 */
  uint32_t timeout_ms; /* an operation that takes longer fails and names the ranks it waits for, as
                        * with operation_timeout_ms, which it is instead of; 0: that */

  /* Of a tolerant all-reduce, each rank for its own packets: what switches shall drop first, which
   * is another matter than `priority`, what shall go first. */
  uint32_t importance;     /* SPILLWAY_IMPORTANCE_BY_ENERGY; or of all packets alike: 0 to 3 are
                            * dropped early, 4 to 6 are not, 7 must arrive */
  uint32_t expendable_ppm; /* by energy: of a contribution's packets, those to drop first;
                            * SPILLWAY_EXPENDABLE_AS_LOST: as many as loss_bound_ppm */

  /* Of a tolerant all-reduce. */
  uint32_t code;           /* spillway_code; planes */
  uint32_t predicts_scale; /* 1, with all but planes: the scale is made of the last operation's with
                            * this feedback_tensor, which saves a round trip; what is too large for
                            * it is cut off, and made up for in the next. 0: ranks agree on it */

  /* Of an exact all-reduce, and of a tolerant one of thc, or of planes without least_contributors;
   * each rank for its own memory. */
  uint32_t memory; /* spillway_memory that send and receive are in; host */
  uint32_t device; /* of CUDA: which GPU; 0 */
  void* stream;    /* of CUDA: the cudaStream_t of the caller's work on them, behind which the
                    * operation comes; its result is there for all streams when it has ended. NULL:
                    * the default one */
} spillway_operation_options;

/* Writes the beginning of a struct of `size` bytes, as the caller knows it. */
SPILLWAY_API void spillway_operation_options_init_sized(spillway_operation_options* options,
                                                        size_t size);
/* For callers that were compiled before the sized one came: writes no more than they have. All
 * others mean the macro. */
SPILLWAY_API void spillway_operation_options_init(spillway_operation_options* options);
#define spillway_operation_options_init(options) \
  spillway_operation_options_init_sized((options), sizeof(*(options)))

/* Whether an all-reduce of floating-point numbers would take these options: what is outside of its
 * range is SPILLWAY_INVALID_ARGUMENT, with the range in spillway_last_error(). Fields behind
 * `tolerant` are looked at only where that is 1. NULL stands for the defaults. */
SPILLWAY_API spillway_status
spillway_operation_options_check(const spillway_operation_options* options);

typedef struct spillway_request spillway_request;

/* count elements in, count out. */
SPILLWAY_API spillway_status spillway_all_reduce(spillway_comm* comm, const void* send,
                                                 void* receive, size_t count,
                                                 spillway_data_type type, spillway_reduction op,
                                                 const spillway_operation_options* options,
                                                 spillway_request** request);
/* count elements out; world times as many in. */
SPILLWAY_API spillway_status spillway_reduce_scatter(spillway_comm* comm, const void* send,
                                                     void* receive, size_t count,
                                                     spillway_data_type type, spillway_reduction op,
                                                     const spillway_operation_options* options,
                                                     spillway_request** request);
/* count elements in; world times as many out. */
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
/* Gets the first message of its tag from its rank, or from any, that no earlier receive got. A
 * message that lies there unreceived holds up none of other tags, as long as it is not followed by
 * 4,096 of the same two ranks. Type and count must be the sender's. */
SPILLWAY_API spillway_status spillway_receive(spillway_comm* comm, void* receive, size_t count,
                                              spillway_data_type type, uint32_t from,
                                              const spillway_operation_options* options,
                                              spillway_request** request);

/* ---- Requests ---- */

/* How the operation ended, or SPILLWAY_IN_PROGRESS after `timeout_ms`; -1 waits for as long as it
 * takes. When it has ended, its callback has returned as well. */
SPILLWAY_API spillway_status spillway_request_wait(const spillway_request* request,
                                                   int64_t timeout_ms);
/* 1 if the operation has ended, else 0. */
SPILLWAY_API int spillway_request_test(const spillway_request* request);
/* How it ended, or SPILLWAY_IN_PROGRESS. */
SPILLWAY_API spillway_status spillway_request_status(const spillway_request* request);
/* The sentence of an operation that failed, else "". Valid until the request is freed. */
SPILLWAY_API const char* spillway_request_message(const spillway_request* request);
/* May come before the operation has ended, which it does all the same: buffers must last, and only
 * a callback tells when they are free. */
SPILLWAY_API void spillway_request_free(spillway_request* request);

/* What came of an operation at this rank. Packets from others are in exactly one of whole, trimmed
 * and missing. */
typedef struct spillway_operation_report {
  size_t size;          /* set to sizeof before the call */
  uint64_t duration_ns; /* from the call to the end */
  uint64_t packets_whole;
  uint64_t packets_trimmed;
  uint64_t packets_missing;
  uint64_t packets_sent; /* repeats included */
  uint64_t packets_repeated;
  uint64_t wire_bytes_sent; /* UDP payload, repeats included */
  /* Of a tolerant all-reduce. */
  uint32_t contributors; /* ranks in the sum of the shard that has the fewest, empty ones aside */
  uint32_t empty_shards; /* without a sum, as their owner was too late: zero at all ranks */
  double drift;          /* expected squared distance to the owners' sums, over their energy */
  uint32_t peers;        /* ranks, this one included, that spillway_request_peer_report knows */
  uint32_t algorithm;    /* spillway_algorithm that was used */
  uint32_t source;       /* of a receive: the rank it came from; SPILLWAY_ANY_RANK of others */
  uint32_t code;         /* spillway_code that was used; 0 of exact ones */
  /* Of a tolerant all-reduce. */
  uint64_t absent_elements; /* that no rank is in the sum of: zero at all ranks */
  uint32_t absent_ranges;   /* in so many runs: spillway_request_absent_range */
  uint32_t shards;          /* that spillway_request_shard_report knows */
  /* Of the codes thc and blocks. The first three are of the shards that this rank owns. */
  uint64_t parts_added;    /* other ranks' parts that switches had added up before they came */
  uint64_t parts_alone;    /* those that came by themselves */
  uint64_t chunks_flushed; /* packets' worth of sums whose parts had to be asked for */
  uint64_t values_clipped; /* of this rank's, too large for the scale: of coded ones as well */
  /* Of the codes coded and sketch: of numbers that this rank coded itself. */
  uint64_t coded_values;
  uint64_t coded_bytes;  /* that they took */
  uint64_t coded_tables; /* messages that had to carry a table */
  /* Of the code sketch, the same at all ranks. */
  uint64_t sketch_predicted;   /* values that were expected not to be zero; all in a dense step */
  uint64_t sketch_misses;      /* others that were not, at some rank */
  uint64_t sketch_unrecovered; /* of these, in no sum: zero at all ranks, and owed */
  /* How long parts took, of all pieces together; pieces overlap. What a GPU coded: by its clock. */
  uint64_t encode_ns;    /* values to messages */
  uint64_t to_host_ns;   /* messages that a GPU made */
  uint64_t exchange_ns;  /* from the first message that could leave to the last that came */
  uint64_t to_device_ns; /* messages that a GPU is to read */
  uint64_t decode_ns;    /* messages to values, and their sums */
  uint64_t gpu_wait_ns;  /* until it was this rank's turn on the GPU */
  uint64_t gpu_bytes;    /* of the tensor, that a GPU coded */
} spillway_operation_report;

/* What came from one rank. */
typedef struct spillway_peer_report {
  size_t size; /* set to sizeof before the call */
  uint64_t packets_whole;
  uint64_t packets_trimmed;
  uint64_t packets_missing;
  uint32_t late; /* 1: it was not waited for */
  uint32_t reserved;
} spillway_peer_report;

/* Who is in the sum of one shard of a tolerant all-reduce. With least_contributors or
 * feedback_tensor all ranks know; without, nobody is left out but by losses within the bound, which
 * only a shard's owner knows of. */
typedef struct spillway_shard_report {
  size_t size;           /* set to sizeof before the call */
  uint64_t first;        /* element */
  uint64_t count;        /* elements */
  uint32_t owner;        /* rank that added it up */
  uint32_t contributors; /* ranks in the part of it that has the fewest; 0: it has no sum */
} spillway_shard_report;

/* SPILLWAY_IN_PROGRESS, and nothing written, while the operation has not ended. */
SPILLWAY_API spillway_status spillway_request_report(const spillway_request* request,
                                                     spillway_operation_report* report);
SPILLWAY_API spillway_status spillway_request_peer_report(const spillway_request* request,
                                                          uint32_t rank,
                                                          spillway_peer_report* report);
/* Of shards 0 to the report's `shards` - 1, in the order of their elements. */
SPILLWAY_API spillway_status spillway_request_shard_report(const spillway_request* request,
                                                           uint32_t shard,
                                                           spillway_shard_report* report);
/* Of ranges 0 to the report's `absent_ranges` - 1, in order: elements first to first + count - 1.
 */
SPILLWAY_API spillway_status spillway_request_absent_range(const spillway_request* request,
                                                           uint32_t range, uint64_t* first,
                                                           uint64_t* count);

/* ======== Jobs whose members change ========
 *
 * A rank that is gone, or that shall go, is replaced by a standby, or the others go on without it.
 * Members agree on that by themselves, over connections of their own; each agreement is an epoch
 * with communicators of its own. In NCCL's words: an epoch that ends is revoked, the next one is
 * shrunk or has a replacement, and spillway_job_join() grows the reserve.
 *
 *   spillway_job_found(comm, &config, &job)              all ranks; the last `standbys` wait
 *   spillway_job_comm(job, 0, NULL, 0, &epoch_comm)      of the present epoch
 *   for each step:
 *     spillway_job_step(job, step, work_us, &must_stop)
 *     if it must, or an operation has failed:
 *       free the epoch's communicators
 *       spillway_job_park(job, &position, timeout, &change)
 *       spillway_job_comm(job, 0, NULL, 0, &epoch_comm); bring the state to who has none
 *   spillway_job_finish(job, timeout, &is_done)
 *
 * A job is used by one thread at a time, but for spillway_job_ask and spillway_job_interrupted. */

typedef struct spillway_job spillway_job;

#define SPILLWAY_MAX_CHANNELS 8u
#define SPILLWAY_MAX_TICKET 256u

typedef struct spillway_job_config {
  size_t size;
  uint32_t standbys;           /* of the founders, the last so many; 0 */
  uint32_t channels;           /* communicators of an epoch, up to SPILLWAY_MAX_CHANNELS; 1 */
  uint32_t may_shrink;         /* 1: with no standby left the others go on without who is gone; 0 */
  uint32_t min_ranks;          /* that are worth going on with; 1 */
  uint32_t silence_ms;         /* after which a member that says nothing is gone; 0: as a rank */
  uint32_t park_limit_ms;      /* for a rank to stand still once it must; 300000 */
  uint32_t straggler_percent;  /* of the median time of ranks, from which one is a straggler; 200 */
  uint32_t replace_stragglers; /* 1: as if somebody had asked to move it; 0 */
  uint32_t may_grow;           /* 0: requests to grow are refused; 1 */
  uint32_t reserved;
  const char* ticket_file; /* where the first rank writes the ticket; NULL: SPILLWAY_JOB_FILE */
  const spillway_comm_config* comm; /* of epochs' communicators; id, rank, world and servers have no
                                     * say; NULL: as the environment says */
} spillway_job_config;
SPILLWAY_API void spillway_job_config_init_sized(spillway_job_config* config, size_t size);
#define spillway_job_config_init(config) spillway_job_config_init_sized((config), sizeof(*(config)))

/* Called by all ranks of `comm`, which is only needed for it. */
SPILLWAY_API spillway_status spillway_job_found(spillway_comm* comm,
                                                const spillway_job_config* config,
                                                spillway_job** job);
/* For a process that comes later and becomes a standby. `ticket`: what spillway_job_ticket gave a
 * member. */
SPILLWAY_API spillway_status spillway_job_join(const char* ticket,
                                               const spillway_job_config* config,
                                               spillway_job** job);
SPILLWAY_API void spillway_job_free(spillway_job* job);

/* "10.0.0.3:41234,10.0.0.4:52000/3f09...": what others need to find the job. `text` has room for
 * SPILLWAY_MAX_TICKET bytes. */
SPILLWAY_API spillway_status spillway_job_ticket(const spillway_job* job, char* text, size_t size);

typedef struct spillway_job_change {
  size_t size;      /* set to sizeof before the call */
  uint32_t ends;    /* 1: the job, or this process's part in it, has ended: `why` says it */
  uint32_t epoch;   /* 1 for the founders' */
  int32_t rank;     /* -1: a standby now */
  uint32_t world;   /* ranks, without standbys */
  uint64_t step;    /* at whose beginning all go on */
  uint32_t sources; /* how many ranks have that step's state (spillway_job_sources) */
  uint32_t is_done; /* 1: it ends as it should: all steps are done, or it was asked to end */
  int64_t
      interrupted_ns; /* when this process was told to stop, stood still, and knew: wall clock */
  int64_t parked_ns;
  int64_t decided_ns;
  char why[512];
} spillway_job_change;

/* What a founder starts with. SPILLWAY_UNAVAILABLE at who joined later: that parks. */
SPILLWAY_API spillway_status spillway_job_first_change(const spillway_job* job,
                                                       spillway_job_change* change);

/* A step is about to begin; the one before took `work_us` of this rank's own time, without what it
 * waited for others. `must_stop` becomes 1 where it must not begin. */
SPILLWAY_API spillway_status spillway_job_step(spillway_job* job, uint64_t step, uint64_t work_us,
                                               int* must_stop);
/* 1: training must stop at once; the epoch's communicators have been aborted. */
SPILLWAY_API int spillway_job_interrupted(const spillway_job* job);

typedef struct spillway_job_position {
  size_t size;
  uint32_t has_state; /* a standby has none */
  uint32_t is_warm;   /* a standby's first step will cost nothing extra */
  uint64_t step;      /* at whose beginning the state is */
} spillway_job_position;

/* Training stands still. Returns when it is known how it goes on, or after `timeout_ms` with
 * SPILLWAY_IN_PROGRESS: then it may be called again. A standby is told only when it is called in or
 * let go. */
SPILLWAY_API spillway_status spillway_job_park(spillway_job* job,
                                               const spillway_job_position* position,
                                               uint32_t timeout_ms, spillway_job_change* change);
/* The last change's: at most `count` ranks. */
SPILLWAY_API spillway_status spillway_job_sources(const spillway_job* job, uint32_t* ranks,
                                                  uint32_t count);
/* A communicator of the last change's epoch, among `ranks` of it, this one included, or all where
 * `count` is 0. Asks nobody. Once per channel and epoch; the same at all of them. Aborted when
 * training must stop. */
SPILLWAY_API spillway_status spillway_job_comm(spillway_job* job, uint32_t channel,
                                               const uint32_t* ranks, uint32_t count,
                                               spillway_comm** comm);

/* All steps are done here. `is_done` becomes 1 when they are at every rank, 0 when training must
 * stop because somebody is gone who was not done: park. SPILLWAY_IN_PROGRESS after `timeout_ms`. */
SPILLWAY_API spillway_status spillway_job_finish(spillway_job* job, uint32_t timeout_ms,
                                                 int* is_done);
/* This process ends its part, and the others need not find out. */
SPILLWAY_API spillway_status spillway_job_leave(spillway_job* job);
/* "status" (one object of JSON), "move RANK...", "remove RANK...", "grow COUNT", "end": as the tool
 * `spillway job` asks. From any thread. */
SPILLWAY_API spillway_status spillway_job_ask(spillway_job* job, const char* question,
                                              uint32_t timeout_ms, char* answer, size_t size);

/* ======== Packets ======== */

typedef enum spillway_estimate {
  SPILLWAY_ESTIMATE_UNBIASED = 0,     /* right on average: for sums over workers */
  SPILLWAY_ESTIMATE_MINIMUM_ERROR = 1 /* closest: for one reader, or with error feedback */
} spillway_estimate;

/* How values become packets. Sender and receiver must use the same options. */
typedef struct spillway_packet_options {
  size_t size; /* of this struct, set by spillway_packet_options_init */

  /* The network. */
  uint32_t mtu;        /* 1500 */
  uint32_t trim_bytes; /* size of a trimmed frame from its Ethernet header; 0: not trimmed. 206 */
  uint32_t ip_version; /* 4 */

  /* The code. */
  uint32_t precision; /* bits per value, 1..32; 16 */
  uint32_t row_log2;  /* log2 of the rotated row's length, 8..15; 13 */
  uint32_t estimate;  /* spillway_estimate, receiver only */

  /* Who talks to whom about what. `seed` is shared by a job's workers and by nobody else's. The
   * fields from `operation` to `phase` name the message: no two of a job and epoch agree in all. */
  uint16_t job;
  uint64_t epoch;
  uint64_t seed;
  uint64_t operation; /* its number */
  uint64_t signature; /* of its arguments, or whatever else tells operations apart */
  uint16_t piece;     /* which part of the operation's data */
  uint16_t source;    /* rank that sends it */
  uint8_t phase;      /* 0 reduce, 1 gather, 2 note, 3 point-to-point */
  uint8_t priority;   /* 0..7, how urgent */
  uint8_t importance; /* 0..7, how little of it may be lost */

  /* Packets carry tags. With a key (at least 16 bytes) nobody without it can make them; without
   * one, whoever knows the fields above can. */
  const uint8_t* key;
  size_t key_size;
  uint8_t encrypt; /* scale and values, too; needs a key. No two messages under a key may then
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
