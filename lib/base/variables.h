// SPDX-License-Identifier: Apache-2.0
//
// The table of all SPILLWAY_* variables: name, kind, allowed values, default, meaning, readers.
// Code reads a variable by name and takes range and default from here (base/environment.h).
// `spillway env` prints this table, and docs/environment.md is its output.
//
// Names are looked up at compile time: a name that is not in the table, or has another kind, does
// not compile. To add a variable, add a row and run `spillway env --markdown >
// docs/environment.md`.
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
  kSignal,     // one of `choices`, with or without SIG, its number, or a real-time signal's number
  kPlace,      // a host and a port
  kAddress,    // a numeric address and a port
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
     .meaning = "number of ranks; set it together with SPILLWAY_RANK, and for spillway ps"},
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
    {.name = "SPILLWAY_STAGE",
     .topic = internal::kJob,
     .kind = VariableKind::kPath,
     .otherwise_words = "all ranks are real",
     .readers = "PyTorch, tool",
     .meaning =
         "socket of a stage, of which this process is a real rank; spillway emulate stage sets it"},
    {.name = "SPILLWAY_SERVERS",
     .topic = internal::kJob,
     .kind = VariableKind::kNumber,
     .most = internal::kMaxRanks - 1,
     .otherwise = "0",
     .readers = "library, tool",
     .meaning = "number of parameter servers (spillway ps) beside the ranks; default of spillway "
                "ps itself: 1"},
    {.name = "SPILLWAY_SERVER_INDEX",
     .topic = internal::kJob,
     .kind = VariableKind::kNumber,
     .most = internal::kMaxRanks - 2,
     .otherwise = "0",
     .readers = "tool",
     .meaning = "index of this spillway ps among the parameter servers"},
    {.name = "SPILLWAY_PEERS",
     .topic = internal::kJob,
     .kind = VariableKind::kAddresses,
     .otherwise_words = "ranks tell each other",
     .readers = "library, lab sets it",
     .meaning = "addresses of all ranks, in rank order"},
    {.name = "SPILLWAY_LISTEN",
     .topic = internal::kJob,
     .kind = VariableKind::kAddress,
     .otherwise_words = "a free port of the chosen interface",
     .readers = "library, lab sets it",
     .meaning = "address at which this rank receives"},
    {.name = "SPILLWAY_LAB_ID",
     .topic = internal::kJob,
     .kind = VariableKind::kText,
     .otherwise_words = "not in a lab",
     .readers = "library, lab sets it",
     .meaning = "name of the lab that started a process; keeps jobs of different labs apart"},
    {.name = "SPILLWAY_HOST_NAME",
     .topic = internal::kJob,
     .kind = VariableKind::kText,
     .otherwise_words = "not in a lab",
     .readers = "lab sets it",
     .meaning = "name of the lab host on which a command runs"},
    {.name = "SPILLWAY_LAB_STEPS",
     .topic = internal::kJob,
     .kind = VariableKind::kPath,
     .otherwise_words = "not reported",
     .readers = "Python, lab sets it",
     .meaning = "file in which lab compare reads a PyTorch script's step times"},
    {.name = "SPILLWAY_LAB_BACKEND",
     .topic = internal::kJob,
     .kind = VariableKind::kChoice,
     .choices = "gloo,spillway",
     .otherwise_words = "as the script says",
     .readers = "Python, lab sets it",
     .meaning = "backend that init_process_group() creates under lab compare"},
    {.name = "SPILLWAY_LAB_HOOK",
     .topic = internal::kJob,
     .kind = VariableKind::kChoice,
     .choices = "fp16,powersgd",
     .otherwise_words = "none",
     .readers = "Python, lab sets it",
     .meaning = "torch's communication hook that lab compare puts around DistributedDataParallel"},
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
    {.name = "SPILLWAY_PATHS",
     .topic = internal::kNetwork,
     .kind = VariableKind::kNumber,
     .least = 1,
     .most = 64,
     .otherwise_words = "8; 1 on loopback",
     .readers = "library",
     .meaning = "number of source ports over which packets are sprayed"},
    {.name = "SPILLWAY_CARRIER",
     .topic = internal::kNetwork,
     .kind = VariableKind::kChoice,
     .choices = "auto,udp,tcp",
     .otherwise = "auto",
     .readers = "library",
     .meaning = "carrier of packets, the same at all ranks; auto: UDP, and TCP to peers that UDP "
                "does not reach"},
    {.name = "SPILLWAY_TCP_CONGESTION",
     .topic = internal::kNetwork,
     .kind = VariableKind::kText,
     .otherwise_words = "the system's",
     .readers = "library",
     .meaning = "congestion control for packets over TCP: cubic, bbr, ..."},
    {.name = "SPILLWAY_WINDOW",
     .topic = internal::kNetwork,
     .kind = VariableKind::kChoice,
     .choices = "spillway,dctcp,timely",
     .otherwise = "spillway",
     .readers = "library, tool",
     .meaning = "algorithm that limits the data in flight to a rank: by marks and delay, by marks, "
                "or by delay"},
    {.name = "SPILLWAY_TRIMMED_TARGET",
     .topic = internal::kNetwork,
     .kind = VariableKind::kShare,
     .otherwise_words = "no over-send",
     .readers = "library, tool",
     .meaning = "over-send on trimming fabrics: share of packets that should arrive trimmed so "
                "that links stay full; at most 0.5"},
    {.name = "SPILLWAY_ALGORITHM",
     .topic = internal::kNetwork,
     .kind = VariableKind::kChoice,
     .choices = "auto,direct,ring,tree,levels,switch",
     .otherwise = "auto",
     .readers = "library",
     .meaning =
         "algorithm of exact operations, the same at all ranks. Ignored by operations that do not "
         "support it; an argument of the call wins. switch: exact operations as with auto; "
         "tolerant all-reduces use thc up to 8 bits and blocks above, which switches can add"},
    {.name = "SPILLWAY_RACK_RANKS",
     .topic = internal::kNetwork,
     .kind = VariableKind::kNumber,
     .most = internal::kMaxRanks,
     .otherwise = "0",
     .readers = "library",
     .meaning = "number of consecutive ranks under one switch, the same at all ranks and for every "
                "communicator of the process. With thin links between switches, large exact "
                "all-reduces then go in two levels. 0: unknown"},
    {.name = "SPILLWAY_SHARES",
     .topic = internal::kNetwork,
     .kind = VariableKind::kChoice,
     .choices = "auto,equal",
     .otherwise = "auto",
     .readers = "library",
     .meaning = "how large all-reduces are divided among owners: by what links carry, or equally; "
                "one rank decides for all"},
    {.name = "SPILLWAY_CHUNKS",
     .topic = internal::kNetwork,
     .kind = VariableKind::kChoice,
     .choices = "equal,balanced,striped",
     .otherwise = "striped",
     .readers = "library",
     .meaning = "how ranks divide tensors of the codec coded, the same at all ranks: runs of equal "
                "length, runs of equal bits in the last step, or short blocks in turn"},
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
    {.name = "SPILLWAY_GSO",
     .topic = internal::kNetwork,
     .kind = VariableKind::kFlag,
     .otherwise = "1",
     .readers = "library, tool",
     .meaning = "send many datagrams in one call, if the kernel can (UDP_SEGMENT)"},
    {.name = "SPILLWAY_GRO",
     .topic = internal::kNetwork,
     .kind = VariableKind::kFlag,
     .otherwise = "1",
     .readers = "library, tool",
     .meaning = "receive many datagrams in one call, if the kernel can (UDP_GRO)"},
    {.name = "SPILLWAY_BATCHING",
     .topic = internal::kNetwork,
     .kind = VariableKind::kFlag,
     .otherwise = "1",
     .readers = "library, tool",
     .meaning = "combine several calls into one (sendmmsg, recvmmsg)"},

    {.name = "SPILLWAY_THREADS",
     .topic = internal::kMachine,
     .kind = VariableKind::kNumber,
     .most = 64,
     .otherwise_words = "a rank's processors minus one, at most 4",
     .readers = "library",
     .meaning = "threads for sums and coding; 0: the thread that moves packets does both"},
    {.name = "SPILLWAY_IO_THREADS",
     .topic = internal::kMachine,
     .kind = VariableKind::kNumber,
     .least = 1,
     .most = 3,
     .otherwise_words = "1; 2 where a rank has 4 processors or more, unless they run the codec",
     .readers = "library, tool",
     .meaning = "threads that move packets: one runs the protocol, one writes and sends for it, "
                "one reads ahead"},
    {.name = "SPILLWAY_BUSY_POLL",
     .topic = internal::kMachine,
     .kind = VariableKind::kNumber,
     .most = 1'000'000,
     .otherwise = "0",
     .readers = "library",
     .meaning = "microseconds for which a rank polls for packets before it sleeps"},
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

    {.name = "SPILLWAY_GPU_CODING",
     .topic = internal::kMachine,
     .kind = VariableKind::kFlag,
     .otherwise = "1",
     .readers = "PyTorch",
     .meaning =
         "1: the GPU codes CUDA tensors where possible; 0: the CPU does. Each rank for itself"},
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
    {.name = "SPILLWAY_FLIGHT_RECORDER",
     .topic = internal::kObserving,
     .kind = VariableKind::kNumber,
     .least = 1,
     .most = 65'536,
     .otherwise = "1024",
     .readers = "library",
     .meaning = "number of operations that are remembered, at about 800 bytes each"},
    {.name = "SPILLWAY_DUMP_SIGNAL",
     .topic = internal::kObserving,
     .kind = VariableKind::kSignal,
     .choices = "NONE,USR1,USR2,HUP,QUIT",
     .otherwise = "USR2",
     .readers = "library",
     .meaning = "signal on which a process dumps the operations it remembers"},
    {.name = "SPILLWAY_FLIGHT_FILE",
     .topic = internal::kObserving,
     .kind = VariableKind::kPath,
     .otherwise_words = "standard error, and only on the signal",
     .readers = "library",
     .meaning = "file for that dump, which is also written at the first failure; %h is the host, "
                "%p the process"},
    {.name = "SPILLWAY_METRICS_FILE",
     .topic = internal::kObserving,
     .kind = VariableKind::kPath,
     .otherwise_words = "none",
     .readers = "library",
     .meaning = "metrics for node-exporter; %r rank, %c communicator, %h host, %p process"},
    {.name = "SPILLWAY_METRICS_SECONDS",
     .topic = internal::kObserving,
     .kind = VariableKind::kNumber,
     .least = 1,
     .most = internal::kDay,
     .otherwise = "10",
     .readers = "library",
     .meaning = "interval at which that file is written"},
    {.name = "SPILLWAY_METRICS_PORT",
     .topic = internal::kObserving,
     .kind = VariableKind::kNumber,
     .least = 1,
     .most = 65'535,
     .otherwise_words = "not served",
     .readers = "library",
     .meaning =
         "metrics at http://127.0.0.1:PORT/metrics; each rank of a machine adds its local rank"},
    {.name = "SPILLWAY_METRICS_LISTEN",
     .topic = internal::kObserving,
     .kind = VariableKind::kAddress,
     .otherwise_words = "not served",
     .readers = "library",
     .meaning = "the same at another address; overrides SPILLWAY_METRICS_PORT"},
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
    {.name = "SPILLWAY_WAITS",
     .topic = internal::kObserving,
     .kind = VariableKind::kPath,
     .otherwise_words = "none",
     .readers = "library, lab sets it",
     .meaning = "file in which a rank counts what its operations wait for"},

    {.name = "SPILLWAY_MODE",
     .topic = internal::kTorch,
     .kind = VariableKind::kChoice,
     .choices = "exact,tolerant",
     .otherwise = "exact",
     .readers = "PyTorch",
     .meaning =
         "whether the backend's all-reduces of floating-point tensors are exact or tolerant"},
    // For a mean of independent gradients, 5 bits cause an error of 0.5 % of the energy.
    {.name = "SPILLWAY_PRECISION",
     .topic = internal::kTorch,
     .kind = VariableKind::kNumber,
     .least = 1,
     .most = 32,
     .otherwise = "5",
     .readers = "PyTorch",
     .meaning = "bits per value sent towards the sums"},
    // Among the precisions that thc accepts, 4 bits is what its authors recommend.
    {.name = "SPILLWAY_CODEC",
     .topic = internal::kTorch,
     .kind = VariableKind::kChoice,
     .choices = "planes,thc,blocks,coded,sketch,auto",
     .otherwise = "planes",
     .readers = "PyTorch",
     .meaning = "code of tolerant all-reduces. planes: bit planes, which switches may trim. thc: "
                "few levels, which switches can add; SPILLWAY_PRECISION 2, 3, 4 or 8, default 4; "
                "clips, so sums shrink a little without error feedback. "
                "blocks: 32-bit integers, which they can add. coded: integers of 2 to 16 bits, "
                "default 8, entropy-coded; all arrive. sketch: the same for mostly-zero gradients. "
                "auto: tries some codes and takes the fastest"},
    {.name = "SPILLWAY_GATHER_PRECISION",
     .topic = internal::kTorch,
     .kind = VariableKind::kNumber,
     .least = 1,
     .most = 32,
     .otherwise_words = "as SPILLWAY_PRECISION",
     .readers = "PyTorch",
     .meaning = "bits per value of the returned sums"},
    {.name = "SPILLWAY_LOSS_BOUND",
     .topic = internal::kTorch,
     .kind = VariableKind::kShare,
     .otherwise = "0.01",
     .readers = "PyTorch",
     .meaning = "share of a contribution's packets that may stay missing; 0: all arrive, possibly "
                "trimmed"},
    {.name = "SPILLWAY_IMPORTANCE",
     .topic = internal::kTorch,
     .kind = VariableKind::kChoice,
     .choices = "energy,0,1,2,3,4,5,6,7",
     .otherwise = "energy",
     .readers = "PyTorch",
     .meaning = "what switches drop first. energy: packets of rows with little energy. 0 to 7 for "
                "all packets: 0 to 3 are dropped early, 4 to 6 are not, 7 must arrive"},
    {.name = "SPILLWAY_EXPENDABLE",
     .topic = internal::kTorch,
     .kind = VariableKind::kShare,
     .otherwise_words = "as SPILLWAY_LOSS_BOUND for front layers, less towards the back",
     .readers = "PyTorch",
     .meaning = "with energy: share of a contribution's packets that switches drop first"},
    {.name = "SPILLWAY_PRIORITY",
     .topic = internal::kTorch,
     .kind = VariableKind::kChoice,
     .choices = "layer,0,1,2,3,4,5,6,7",
     .otherwise = "layer",
     .readers = "PyTorch",
     .meaning = "priority of a backward pass's all-reduces. layer: front layers first. 0 to 7 for "
                "all: 7 goes first"},
    {.name = "SPILLWAY_LEAST_CONTRIBUTORS",
     .topic = internal::kTorch,
     .kind = VariableKind::kShare,
     .otherwise = "0",
     .readers = "PyTorch",
     .meaning =
         "above 0: late ranks are not waited for, as long as this share of the ranks is in a sum"},
    // For tensors below the default, coding saves less time than it costs.
    {.name = "SPILLWAY_TOLERANT_BYTES",
     .topic = internal::kTorch,
     .kind = VariableKind::kNumber,
     .most = internal::kNoLimit,
     .otherwise = "65536",
     .readers = "PyTorch",
     .meaning = "smaller tensors are reduced exactly"},
});

// Null if the name is not in the table.
constexpr const Variable* find_variable(std::string_view name) {
  for (const Variable& variable : kVariables) {
    if (variable.name == name) {
      return &variable;
    }
  }
  return nullptr;
}

// Looks up a name that is a constant in the code.
consteval const Variable& variable(std::string_view name) {
  for (const Variable& variable : kVariables) {
    if (variable.name == name) {
      return variable;
    }
  }
  throw "this variable is not in the table";
}

// A name in the table whose variable has one of these kinds.
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
