// SPDX-License-Identifier: Apache-2.0
//
// The tables of all SPILLWAY_* variables: name, kind, allowed values, default, meaning, readers.
// Code reads a variable by name and takes range and default from here (base/environment.h).
// `spillway env` prints kVariables, and docs/environment.md is its output. kPrivateVariables, which
// the program sets for the processes that it starts, are neither printed nor documented.
//
// Names are looked up at compile time: a name that is in no table, or has another kind, does not
// compile. To add a variable, add a row and run `spillway env --markdown > docs/environment.md`.
//
// Constants; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

namespace spillway::base {

enum class VariableKind : std::uint8_t {
  kNumber,     // a whole number from least to most
  kSeconds,    // least and most in milliseconds; may have a fraction
  kShare,      // from 0 to 1
  kFlag,       // 0 or 1
  kChoice,     // one of `choices`
  kChoices,    // a list of `choices`; with ^ in front, all but these
  kPlace,      // a host and a port
  kAddress,    // a numeric address and a port
  kListen,     // a port, or a numeric address and a port
  kAddresses,  // a list of addresses with ports
  kSecret,     // at least `least` bytes; never shown
  kText,       // anything
  kPath,       // anything
};

struct Variable {
  std::string_view name{};
  std::string_view topic{};
  VariableKind kind = VariableKind::kText;
  std::int64_t least = 0;
  std::int64_t most = 0;
  std::string_view choices{};          // comma-separated; case does not matter
  std::string_view otherwise{};        // the default as it would be set; empty: no default
  std::string_view otherwise_words{};  // the default in words
  std::string_view readers{};  // comma-separated: library, PyTorch, Python, tool, lab sets it
  std::string_view meaning{};
};

namespace internal {

inline constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t kMaxRanks = 4096;
inline constexpr std::int64_t kDay = 86'400;

inline constexpr std::string_view kJob = "Identity and rendezvous";
inline constexpr std::string_view kNetwork = "Network";
inline constexpr std::string_view kMachine = "Machine";
inline constexpr std::string_view kPatience = "Timeouts";
inline constexpr std::string_view kObserving = "Logs, metrics and traces";
inline constexpr std::string_view kTorch = "PyTorch";

}  // namespace internal

inline constexpr auto kVariables = std::to_array<Variable>({
    {.name = "SPILLWAY_RANK",
     .topic = internal::kJob,
     .kind = VariableKind::kNumber,
     .most = internal::kMaxRanks - 1,
     .otherwise_words = "as the launcher says",
     .readers = "library, PyTorch, tool",
     .meaning = "rank of this process; overrides torchrun, mpirun and srun"},
    {.name = "SPILLWAY_WORLD_SIZE",
     .topic = internal::kJob,
     .kind = VariableKind::kNumber,
     .least = 1,
     .most = internal::kMaxRanks,
     .otherwise_words = "as the launcher says",
     .readers = "library, PyTorch, tool",
     .meaning = "number of ranks; set it together with SPILLWAY_RANK, and for spillway server"},
    {.name = "SPILLWAY_LOCAL_RANK",
     .topic = internal::kJob,
     .kind = VariableKind::kNumber,
     .most = internal::kMaxRanks - 1,
     .otherwise_words = "as the launcher says",
     .readers = "library, PyTorch",
     .meaning = "rank among those on this machine"},
    {.name = "SPILLWAY_LOCAL_WORLD_SIZE",
     .topic = internal::kJob,
     .kind = VariableKind::kNumber,
     .least = 1,
     .most = internal::kMaxRanks,
     .otherwise_words = "as the launcher says",
     .readers = "library, PyTorch",
     .meaning = "number of ranks on this machine"},
    {.name = "SPILLWAY_COMM_ID",
     .topic = internal::kJob,
     .kind = VariableKind::kPlace,
     .otherwise_words = "as the launcher says",
     .readers = "library, PyTorch, tool",
     .meaning = "rendezvous of the ranks: an address of rank 0's host and a free port there"},
    {.name = "SPILLWAY_JOB",
     .topic = internal::kJob,
     .kind = VariableKind::kText,
     .otherwise_words = "SPILLWAY_JOB_FILE's",
     .readers = "PyTorch, tool",
     .meaning = "ticket of a running job, for spillway job and for elastic() to join as a standby"},
    {.name = "SPILLWAY_JOB_FILE",
     .topic = internal::kJob,
     .kind = VariableKind::kPath,
     .otherwise_words = "none",
     .readers = "library, PyTorch, tool",
     .meaning = "file for the ticket of an elastic job"},
    {.name = "SPILLWAY_SERVERS",
     .topic = internal::kJob,
     .kind = VariableKind::kNumber,
     .most = internal::kMaxRanks - 1,
     .otherwise = "0",
     .readers = "library, tool",
     .meaning = "number of parameter servers (spillway server) beside the ranks; default of "
                "spillway server itself: 1"},
    {.name = "SPILLWAY_LIBRARY",
     .topic = internal::kJob,
     .kind = VariableKind::kPath,
     .otherwise_words = "looked for beside the package, then in library folders",
     .readers = "Python, lab sets it",
     .meaning = "libspillway.so that the Python package loads"},

    {.name = "SPILLWAY_SOCKET_IFNAME",
     .topic = internal::kNetwork,
     .kind = VariableKind::kText,
     .otherwise_words =
         "the first that is up and leads out; loopback if all ranks are on this machine",
     .readers = "library",
     .meaning = "interfaces to use: eth,ib is a list of prefixes; =eth0 an exact name; ^docker,br "
                "excludes"},
    {.name = "SPILLWAY_SOCKET_FAMILY",
     .topic = internal::kNetwork,
     .kind = VariableKind::kChoice,
     .choices = "AF_INET,AF_INET6",
     .otherwise_words = "IPv4 where an interface has both",
     .readers = "library",
     .meaning = "address family"},
    {.name = "SPILLWAY_LINK_RATE",
     .topic = internal::kNetwork,
     .kind = VariableKind::kNumber,
     .least = 1000,
     .most = internal::kNoLimit,
     .otherwise_words = "from the kernel; 10 Gbit/s if it does not know",
     .readers = "library, lab sets it",
     .meaning = "rate of this host's link in bits per second"},
    {.name = "SPILLWAY_MTU",
     .topic = internal::kNetwork,
     .kind = VariableKind::kNumber,
     .least = 576,
     .most = 65'536,
     .otherwise_words = "the interface's",
     .readers = "library, lab sets it",
     .meaning =
         "bytes of the longest IP packet; all ranks use the smallest of theirs, 9000 at most"},
    {.name = "SPILLWAY_TRIM_BYTES",
     .topic = internal::kNetwork,
     .kind = VariableKind::kNumber,
     .most = 9000,
     .otherwise = "0",
     .readers = "library, tool, lab sets it",
     .meaning =
         "frame size to which the switches trim, the same at all ranks; 0: they do not trim"},
    {.name = "SPILLWAY_CARRIER",
     .topic = internal::kNetwork,
     .kind = VariableKind::kChoice,
     .choices = "auto,udp,tcp",
     .otherwise = "auto",
     .readers = "library",
     .meaning = "carrier of packets, the same at all ranks; auto: UDP, TCP to peers that UDP does "
                "not reach, and TCP for large all-reduces where trials find it faster"},
    {.name = "SPILLWAY_ALGORITHM",
     .topic = internal::kNetwork,
     .kind = VariableKind::kChoice,
     .choices = "auto,direct,ring,tree,hierarchical,switch",
     .otherwise = "auto",
     .readers = "library",
     .meaning =
         "algorithm of exact operations, the same at all ranks. Ignored by operations that do not "
         "support it; an argument of the call wins. switch: exact operations as with auto; "
         "tolerant all-reduces use levels up to 8 bits and blocks above, which switches can add"},
    {.name = "SPILLWAY_RACK_RANKS",
     .topic = internal::kNetwork,
     .kind = VariableKind::kNumber,
     .most = internal::kMaxRanks,
     .otherwise = "0",
     .readers = "library",
     .meaning = "number of consecutive ranks under one switch, the same at all ranks and for every "
                "communicator of the process. If it is a power of two, large exact all-reduces try "
                "two levels first. 0: unknown, and found by trials"},
    {.name = "SPILLWAY_SECRET",
     .topic = internal::kNetwork,
     .kind = VariableKind::kSecret,
     .least = 16,
     .otherwise_words = "none",
     .readers = "library",
     .meaning = "the job's secret, which ranks prove to know; prefer a file"},
    {.name = "SPILLWAY_SECRET_FILE",
     .topic = internal::kNetwork,
     .kind = VariableKind::kPath,
     .otherwise_words = "SPILLWAY_SECRET, else none",
     .readers = "library",
     .meaning = "file with the job's secret, mode 600, or number of an open descriptor; at least "
                "16 bytes, best random"},
    {.name = "SPILLWAY_ENCRYPT",
     .topic = internal::kNetwork,
     .kind = VariableKind::kFlag,
     .otherwise = "0",
     .readers = "library",
     .meaning = "1: packets are encrypted as well as tagged; needs a secret"},

    {.name = "SPILLWAY_THREADS",
     .topic = internal::kMachine,
     .kind = VariableKind::kNumber,
     .most = 64,
     .otherwise_words = "a rank's processors minus one, at most 4",
     .readers = "library",
     .meaning = "threads for sums and coding; 0: the thread that moves packets does both"},
    {.name = "SPILLWAY_LOCAL_COPY",
     .topic = internal::kMachine,
     .kind = VariableKind::kFlag,
     .otherwise = "1",
     .readers = "library",
     .meaning = "1: ranks on one machine share memory; 0: they use sockets"},
    {.name = "SPILLWAY_SIMD",
     .topic = internal::kMachine,
     .kind = VariableKind::kChoice,
     .choices = "scalar,neon,avx2,avx512,simd",
     .otherwise_words = "the fastest that the processor has",
     .readers = "library, tool",
     .meaning = "instruction set of codec and packet tags; results are the same. Sets that the "
                "processor lacks are skipped"},
    {.name = "SPILLWAY_NVRTC",
     .topic = internal::kMachine,
     .kind = VariableKind::kPath,
     .otherwise_words =
         "looked for in library folders and /usr/local/cuda; Python looks in torch's",
     .readers = "library, PyTorch, tool",
     .meaning = "libnvrtc.so that compiles kernels for GPUs"},
    {.name = "SPILLWAY_CACHE_DIR",
     .topic = internal::kMachine,
     .kind = VariableKind::kPath,
     .otherwise_words = "$XDG_CACHE_HOME/spillway, else ~/.cache/spillway",
     .readers = "library, tool",
     .meaning = "folder for compiled GPU kernels"},

    // The default leaves time to tell the others: a dead rank is named everywhere within two
    // seconds. Below the least, a rank that a busy host does not schedule for a moment would count
    // as dead.
    {.name = "SPILLWAY_PEER_TIMEOUT",
     .topic = internal::kPatience,
     .kind = VariableKind::kSeconds,
     .least = 100,
     .most = internal::kDay * 1000,
     .otherwise = "1.4",
     .readers = "library",
     .meaning = "a rank that is silent for this long while something is due is dead; raise it "
                "where ranks share too few processors or are stopped in a debugger"},
    {.name = "SPILLWAY_RENDEZVOUS_TIMEOUT",
     .topic = internal::kPatience,
     .kind = VariableKind::kSeconds,
     .least = 100,
     .most = internal::kDay * 1000,
     .otherwise = "60",
     .readers = "library, PyTorch",
     .meaning = "how long to wait for all ranks to join; PyTorch's default is its group's timeout"},

    {.name = "SPILLWAY_DEBUG",
     .topic = internal::kObserving,
     .kind = VariableKind::kChoice,
     .choices = "NONE,VERSION,WARN,INFO,TRACE",
     .otherwise_words = "warnings, without the version",
     .readers = "library",
     .meaning = "log level; each includes those before it"},
    {.name = "SPILLWAY_DEBUG_SUBSYS",
     .topic = internal::kObserving,
     .kind = VariableKind::kChoices,
     .choices = "INIT,BOOTSTRAP,ENV,NET,COLL,CODEC,METRICS,ALL",
     .otherwise = "INIT,BOOTSTRAP,ENV",
     .readers = "library",
     .meaning = "subsystems that INFO and TRACE log"},
    {.name = "SPILLWAY_DEBUG_FILE",
     .topic = internal::kObserving,
     .kind = VariableKind::kPath,
     .otherwise_words = "standard error",
     .readers = "library",
     .meaning = "file to which the log is appended; %h is the host, %p the process"},
    {.name = "SPILLWAY_FLIGHT_FILE",
     .topic = internal::kObserving,
     .kind = VariableKind::kPath,
     .otherwise_words = "standard error, and only on the signal",
     .readers = "library",
     .meaning = "file to which a process dumps its last operations, on SIGUSR2 and at the first "
                "failure; %h is the host, %p the process"},
    {.name = "SPILLWAY_METRICS_FILE",
     .topic = internal::kObserving,
     .kind = VariableKind::kPath,
     .otherwise_words = "none",
     .readers = "library",
     .meaning = "metrics for node-exporter, written every 10 seconds; %r rank, %c communicator, %h "
                "host, %p process"},
    {.name = "SPILLWAY_METRICS_LISTEN",
     .topic = internal::kObserving,
     .kind = VariableKind::kListen,
     .otherwise_words = "not served",
     .readers = "library",
     .meaning =
         "metrics at http://ADDRESS:PORT/metrics, at 127.0.0.1 if only a port is given; each "
         "rank of a machine adds its local rank to the port"},
    {.name = "SPILLWAY_TIMELINE",
     .topic = internal::kObserving,
     .kind = VariableKind::kPath,
     .otherwise_words = "none",
     .readers = "library",
     .meaning = "Chrome trace of every operation; %r rank, %c communicator, %h host, %p process"},
    {.name = "SPILLWAY_EXECUTION_TRACE",
     .topic = internal::kObserving,
     .kind = VariableKind::kPath,
     .otherwise_words = "none",
     .readers = "library",
     .meaning = "folder for each rank's Chakra execution trace, which spillway emulate replays"},

    {.name = "SPILLWAY_CODEC",
     .topic = internal::kTorch,
     .kind = VariableKind::kChoice,
     .choices = "exact,planes,levels,blocks,entropy,sketch,auto",
     .otherwise = "exact",
     .readers = "PyTorch",
     .meaning = "codec of the backend's all-reduces and, if it has them, reduce-scatters of "
                "floating-point tensors. exact: none; nothing is lost. planes: bit planes, which "
                "switches may trim. levels: few levels, which "
                "switches can add; clips, so sums shrink a little without error feedback. blocks: "
                "32-bit integers, which they can add. entropy: integers, entropy-coded; all "
                "arrive. sketch: the same for mostly-zero gradients. auto: tries some codecs and "
                "takes the fastest"},
    // For a mean of independent gradients, 5 bits cause an error of 0.5 % of the energy. Among
    // those of levels, 4 bits is what the authors of THC recommend.
    {.name = "SPILLWAY_BITS",
     .topic = internal::kTorch,
     .kind = VariableKind::kNumber,
     .least = 1,
     .most = 32,
     .otherwise_words = "5 for planes, 4 for levels, 8 for entropy and sketch",
     .readers = "PyTorch",
     .meaning = "bits per value. planes: 1 to 32; levels: 2, 3, 4 or 8; entropy and sketch: 2 to "
                "16; the other codecs ignore it, and auto refuses it"},
    {.name = "SPILLWAY_LOSS_BOUND",
     .topic = internal::kTorch,
     .kind = VariableKind::kShare,
     .otherwise_words = "0.01; 0 for entropy and sketch",
     .readers = "PyTorch",
     .meaning = "share of a contribution's packets that may stay missing; 0: all arrive, possibly "
                "trimmed"},
    {.name = "SPILLWAY_LEAST_CONTRIBUTORS",
     .topic = internal::kTorch,
     .kind = VariableKind::kShare,
     .otherwise = "0",
     .readers = "PyTorch",
     .meaning =
         "above 0: late ranks are not waited for, as long as this share of the ranks is in a sum"},
});

// The protocol between the lab, the emulator's stage and the processes that they start. Users never
// set these; they are validated like the others, but `spillway env` does not show them.
inline constexpr auto kPrivateVariables = std::to_array<Variable>({
    {.name = "SPILLWAY_STAGE",
     .kind = VariableKind::kPath,
     .meaning =
         "socket of a stage, of which this process is a real rank; spillway emulate stage sets it"},
    {.name = "SPILLWAY_PEERS",
     .kind = VariableKind::kAddresses,
     .meaning = "addresses of all ranks, in rank order"},
    {.name = "SPILLWAY_LISTEN",
     .kind = VariableKind::kAddress,
     .meaning = "address at which this rank receives"},
    {.name = "SPILLWAY_LAB_ID",
     .kind = VariableKind::kText,
     .meaning = "name of the lab that started a process; keeps jobs of different labs apart"},
    {.name = "SPILLWAY_HOST_NAME",
     .kind = VariableKind::kText,
     .meaning = "name of the lab host on which a command runs"},
    {.name = "SPILLWAY_LAB_STEPS",
     .kind = VariableKind::kPath,
     .meaning = "file in which lab compare reads a PyTorch script's step times"},
    {.name = "SPILLWAY_LAB_BACKEND",
     .kind = VariableKind::kChoice,
     .choices = "gloo,spillway",
     .meaning = "backend that init_process_group() creates under lab compare"},
    {.name = "SPILLWAY_LAB_HOOK",
     .kind = VariableKind::kChoice,
     .choices = "fp16,powersgd,flat",
     .meaning = "change that lab compare makes to a PyTorch script. fp16, powersgd: torch's "
                "communication hook around DistributedDataParallel; flat: one priority for all "
                "layers"},
    {.name = "SPILLWAY_WAITS",
     .kind = VariableKind::kPath,
     .meaning = "file in which a rank counts what its operations wait for"},
});

// Looks in both tables; null if the name is in neither.
constexpr const Variable* find_variable(std::string_view name) {
  for (const Variable& variable : kVariables) {
    if (variable.name == name) {
      return &variable;
    }
  }
  for (const Variable& variable : kPrivateVariables) {
    if (variable.name == name) {
      return &variable;
    }
  }
  return nullptr;
}

// Looks up a name that is a constant in the code.
consteval const Variable& variable(std::string_view name) {
  const Variable* found = find_variable(name);
  if (found == nullptr) {
    throw "this variable is in no table";
  }
  return *found;
}

// A name in a table whose variable has one of these kinds.
template <VariableKind... kinds>
struct VariableOf {
  consteval VariableOf(const char* name)  // NOLINT(google-explicit-constructor)
      : variable(base::variable(name)) {
    if (((variable.kind != kinds) && ...)) {
      throw "this variable is of another kind";
    }
  }
  const Variable& variable;
};

// The same for variables with a default, and below for those without.
template <VariableKind kind>
struct VariableWithDefault : VariableOf<kind> {
  consteval VariableWithDefault(const char* name)  // NOLINT(google-explicit-constructor)
      : VariableOf<kind>(name) {
    if (this->variable.otherwise.empty()) {
      throw "this variable has no default";
    }
  }
};
template <VariableKind kind>
struct VariableWithoutDefault : VariableOf<kind> {
  consteval VariableWithoutDefault(const char* name)  // NOLINT(google-explicit-constructor)
      : VariableOf<kind>(name) {
    if (!this->variable.otherwise.empty()) {
      throw "this variable has a default";
    }
  }
};

}  // namespace spillway::base
