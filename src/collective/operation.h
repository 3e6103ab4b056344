// SPDX-License-Identifier: Apache-2.0
//
// What a caller asks a group of ranks to do together: the kind of operation, its elements, and how
// it may be carried out. Counts mean what they mean in NCCL:
//
//   all_reduce, reduce, broadcast     count elements in, count out
//   reduce_scatter, scatter           count elements out; world times as many in
//   all_gather, gather                count elements in; world times as many out
//   all_to_all                        count elements for each rank, in and out
//   send, receive                     count elements
//
// Every rank calls the operations of a communicator in the same order with the same arguments
// (buffers and priority aside); send and receive count per pair and direction. A 16-bit signature
// of the arguments travels with every message, so ranks that do not agree find out.
//
// In a group with parameter servers the callers are the workers: "rank", "root" and "world" above
// mean them alone. Their all_reduce goes through the servers (push, add up, pull); everything else
// they do among themselves.
//
// A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "collective/element.h"
#include "collective/tolerance.h"

namespace spillway::collective {

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
  kDirect,   // every rank owns a shard: one hop to its owner, one back
  kRing,     // neighbour to neighbour
  kTree,     // a binomial tree
  kServers,  // parameter servers own the shards; used where, and only where, there are some
};
inline constexpr unsigned kAlgorithms = 5;
const char* algorithm_name(Algorithm algorithm);

// Which ranks take part, and which of them this is. The last `servers` of them are parameter
// servers, which add up and contribute nothing; fewer than `world`.
struct Group {
  std::uint16_t rank = 0;
  std::uint16_t world = 1;
  std::uint16_t servers = 0;

  std::uint16_t workers() const { return static_cast<std::uint16_t>(world - servers); }
  bool is_server() const { return rank >= workers(); }
  // The workers as a group of their own.
  Group among_workers() const { return {rank, workers(), 0}; }
};
// "rank 2", or "parameter server 0 (rank 4)".
std::string rank_name(const Group& group, std::uint16_t rank);

struct Operation {
  Kind kind = Kind::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 0;
  std::uint16_t root = 0;  // of broadcast, reduce, gather, scatter; the other end of send, receive
  Algorithm algorithm = Algorithm::kAutomatic;
  // All-reduces of floating-point numbers, sum or average: how much may be lost. Nothing: nothing.
  std::optional<Tolerance> tolerance{};

  std::size_t bytes() const { return count * element_size(type); }
};

// Whether it goes through the group's parameter servers.
inline bool uses_servers(const Operation& operation, const Group& group) {
  return group.servers > 0 && operation.kind == Kind::kAllReduce;
}

bool is_point_to_point(Kind kind);
// Bytes that the operation reads from `input` and writes to `output` at this rank; a server has
// neither.
std::size_t input_bytes(const Operation& operation, const Group& group);
std::size_t output_bytes(const Operation& operation, const Group& group);

// What is wrong with the arguments, before any packet is sent.
base::Status validate(const Operation& operation, const Group& group);

// Kind, type and reduction in clear, all the rest as a hash. A receive has its send's signature.
std::uint16_t signature(const Operation& operation);
// What can be read from a signature, for the message about two that differ.
std::string describe_signature(std::uint16_t signature);
std::string describe(const Operation& operation);

}  // namespace spillway::collective
