// SPDX-License-Identifier: Apache-2.0
//
// Describes one operation of a group of ranks: what is done, with which elements, how it may be
// carried out, and where the caller's memory is. There is no other description: an interface makes
// it, validate() checks it once, and everything below takes it as it is, down to the run that
// carries it out. Counts mean what they mean in NCCL:
//
//   all_reduce, reduce, broadcast     count elements in, count out
//   reduce_scatter, scatter           count elements out; world times as many in
//   all_gather, gather                count elements in; world times as many out
//   all_to_all                        count elements for each rank, in and out
//   send, receive                     count elements
//
// Every rank calls the operations of a communicator in the same order with the same arguments
// (buffers, priority, urgency, importance and timeout aside). A signature of the arguments, 64
// bits, travels with every message, so ranks that do not agree find out. Sends and receives are
// outside of that order: a receive gets the first message of its tag, from its rank or from any,
// that no earlier receive got (collective/matching.h). A send or receive with count 0 sends
// nothing, is over at once and matches nothing.
//
// In a group with parameter servers the callers are the workers: "rank", "root" and "world" above
// mean them alone. Their all_reduce goes through the servers (push, add up, pull); all other
// operations stay among the workers.
//
// The numbers of enumerators are part of the contract between ranks: new ones go to the end, before
// the count is raised, and no number is ever reused. Elements lie in memory as the machine has
// them, which is little-endian everywhere Spillway runs.
//
// Plain values and pure functions: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "base/units.h"

namespace spillway::collective {

enum class DataType : std::uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBfloat16,
  kInt32,
  kInt64,
  kInt8,
  kUint8,
};
inline constexpr std::size_t kDataTypes = 8;

// Bitwise ones are for integers only, averages for types wider than a byte.
enum class ReduceOp : std::uint8_t {
  kSum,
  kAverage,
  kMin,
  kMax,
  kProduct,
  kBitAnd,
  kBitOr,
  kBitXor,
};
inline constexpr std::size_t kReduceOps = 8;

std::size_t element_size(DataType type);  // bytes
bool is_floating(DataType type);          // may go through a lossy codec, and may be NaN

const char* data_type_name(DataType type);   // "float32", "bfloat16", ...
const char* nccl_tests_name(DataType type);  // its name in nccl-tests: "float", "half", ...
const char* reduce_op_name(ReduceOp op);     // "sum", "average", ...
bool has_reduction(DataType type, ReduceOp op);

// Stands for the other end of a receive from whichever rank sends first. No rank has this number.
inline constexpr std::uint16_t kAnyRank = UINT16_MAX;
// Signatures hold tags in clear, so that a receiver can tell one from another.
inline constexpr unsigned kTagBits = 24;
inline constexpr std::uint32_t kMaxTag = (std::uint64_t{1} << kTagBits) - 1;

// How the values of a tolerant all-reduce travel. Sums of levels and blocks can be formed without
// decoding them, also by switches: integers are added, and all ranks end with the same bits,
// whether switches or ranks added. capabilities.h says what each codec goes with.
enum class Codec : std::uint8_t {
  kPlanes,   // bit planes that may be cut; decoded, then added up
  kLevels,   // few levels of rotated rows, rounded at random, after THC
  kBlocks,   // integers of 32 bits, one scale per row, after SwitchML: nearly lossless
  kEntropy,  // integers, entropy-coded: added by ranks, and every packet arrives
  kSketch,   // the same for tensors that are mostly zero: predicts where they are not
};
inline constexpr unsigned kCodecs = 5;
const char* codec_name(Codec codec);  // "planes", "levels", "blocks", "entropy", "sketch"
// True for integers that are coded with tables that both ends remember.
constexpr bool uses_entropy(Codec codec) {
  return codec == Codec::kEntropy || codec == Codec::kSketch;
}

inline constexpr unsigned kMostPrecision = 32;  // bits per value, of any codec
// Limits of entropy-coded all-reduces: bits per integer before coding, and ranks, which all
// exchange hellos.
inline constexpr unsigned kLeastEntropyPrecision = 2;
inline constexpr unsigned kMostEntropyPrecision = 16;
inline constexpr std::uint16_t kMostEntropyRanks = 256;

// How much of an all-reduce or of one of its halves may be lost, and what the caller gets for it.
// Values are sent as bit
// planes of rotated rows, so what a switch cuts off or drops costs a little everywhere instead of
// everything somewhere. Sums are corrected for what did not come, so that they are right on
// average.
//
// The sums themselves come back reliably, with the same planes for all ranks: all end with the same
// bytes.
//
// A reduce-scatter is the first half: rank r owns part r, and keeps its sum as it was added up. An
// all-gather is the second half: every rank codes its part once, with gather_precision, and all
// ranks, the sender included, decode the same bytes. It loses nothing, whatever the loss bound.
struct Tolerance {
  Codec codec = Codec::kPlanes;
  // Bits per value towards the owners: 1 to 32 with planes; 2, 3, 4 or 8 with levels; 2 to 16 with
  // entropy and sketch, before coding. Ignored with blocks.
  std::uint8_t precision = 16;
  std::uint8_t gather_precision = 16;     // bits per value of the sums that come back
  std::uint32_t loss_bound_ppm = 10'000;  // packets of a contribution that may stay missing
  std::uint8_t min_planes = 1;            // that a trimmed packet needs to count as delivered
  // Names the tensor across operations for error feedback: what the sum lacks of this rank's part
  // is added to its next part; in an all-gather, what coding took away. 0: it is lost. Either all
  // ranks name a tensor, or none.
  std::uint64_t feedback_tensor = 0;
  // Above 0: late ranks are not waited for longer than usual, as long as this share of the
  // contributions to each shard is there.
  double least_contributors = 0.0;
  // For all codecs but planes: encode with a scale predicted from the last operation, where
  // feedback_tensor names the tensor, and save a round trip. All ranks must have called it alike so
  // far. If they did not, no rank notices with levels and blocks; with entropy and sketch the
  // hellos show it.
  bool predicts_scale = false;
  // How little of each packet may be lost; each rank chooses its own. Unset: by the energy of the
  // packet's row (packetize/packetizer.h), with a share of expendable_ppm that switches drop first;
  // if that is unset, as much as the loss bound forgives. Set: the same for all packets: 0 to 3 are
  // dropped early, 7 must arrive.
  std::optional<std::uint8_t> importance{};
  std::optional<std::uint32_t> expendable_ppm{};

  std::uint32_t expendable() const { return expendable_ppm.value_or(loss_bound_ppm); }
};

enum class Kind : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,
  kSend,
  kReceive,
};
inline constexpr unsigned kKinds = 11;
const char* kind_name(Kind kind);

enum class Algorithm : std::uint8_t {
  kAutomatic,
  kDirect,        // every rank owns a shard: one hop to its owner, one back
  kRing,          // neighbour to neighbour
  kTree,          // a binomial tree
  kServers,       // parameter servers own the shards; used if and only if there are some
  kHierarchical,  // level by level, near ranks first; in even worlds of four or more
  kSwitch,        // every rank owns a shard, and switches on the way add; for levels and blocks
};
inline constexpr unsigned kAlgorithms = 7;
const char* algorithm_name(Algorithm algorithm);

// Which ranks take part, and which of them this is. The last `servers` of them, fewer than `world`,
// are parameter servers: they add up and contribute nothing.
struct Group {
  std::uint16_t rank = 0;
  std::uint16_t world = 1;
  std::uint16_t servers = 0;

  std::uint16_t workers() const { return static_cast<std::uint16_t>(world - servers); }
  bool is_server() const { return rank >= workers(); }
  // The workers as a group of their own.
  Group among_workers() const { return {rank, workers(), 0}; }
};
// The packets of a group, as far as they limit its codecs.
struct GroupPackets {
  bool are_encrypted = false;
  unsigned mtu = 0;       // 0: unknown, so not checked
  unsigned overhead = 0;  // bytes of a packet that are IP's and UDP's headers
};

// "rank 2", or "parameter server 0 (rank 4)".
std::string rank_name(const Group& group, std::uint16_t rank);

class DeviceTensor;

struct Operation {
  Kind kind = Kind::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 0;
  std::uint16_t root = 0;  // of broadcast, reduce, gather, scatter; the other end of send, receive
  std::uint32_t tag = 0;   // for send and receive, which match by it; up to kMaxTag
  Algorithm algorithm = Algorithm::kAutomatic;
  // Codec and loss bound, for floating-point numbers in the operations of capabilities.h. Unset:
  // lossless.
  std::optional<Tolerance> tolerance{};
  std::uint8_t priority = 3;  // 0 to 7; 7 goes first
  // How strongly its sums claim slots in switches, against other jobs as well: a higher urgency
  // takes slots from a lower one. Unset: by priority.
  std::optional<std::uint8_t> urgency{};
  base::Duration timeout{};  // after which it fails; 0: the communicator's
  // Both outlive the operation; may be the same. NULL where the rank has none (input_bytes()).
  const void* input = nullptr;
  void* output = nullptr;
  // The device that input and output are on, if any (device_tensor.h). capabilities.h says when it
  // is allowed. Each rank chooses its own.
  std::shared_ptr<DeviceTensor> device{};

  std::size_t bytes() const { return count * element_size(type); }
};

// True if the operation goes through the group's parameter servers.
inline bool uses_servers(const Operation& operation, const Group& group) {
  return group.servers > 0 && operation.kind == Kind::kAllReduce;
}

bool is_point_to_point(Kind kind);
// True if ranks' elements are combined by a ReduceOp.
bool is_reduction(Kind kind);
// Bytes that the operation reads from `input` and writes to `output` at this rank; a server has
// neither.
std::size_t input_bytes(const Operation& operation, const Group& group);
std::size_t output_bytes(const Operation& operation, const Group& group);

// Checks the operation at this rank before any packet is sent: ranges, ranks and buffers here, and
// what its codec goes with in capabilities.h.
base::Status validate(const Operation& operation, const Group& group,
                      const GroupPackets& packets = {});

// Kind, type and reduction in clear, the rest as a hash. A receive has its send's signature.
std::uint64_t signature(const Operation& operation);
// The tag in a send's signature.
std::uint32_t tag_of(std::uint64_t signature);
// The clear part of a signature as text, for the message about two that differ.
std::string describe_signature(std::uint64_t signature);
std::string describe(const Operation& operation);
// States all that ranks must agree on: two calls that differ in that differ in words.
std::string describe_call(const Operation& operation);

}  // namespace spillway::collective
