// SPDX-License-Identifier: Apache-2.0
//
// The report of an operation at one rank: how long it took and, for every peer, what arrived from
// it. Always kept; costs a few additions per message.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "collective/operation.h"
#include "collective/shards.h"
#include "transport/message.h"

namespace spillway::collective {

// Packets from one peer. Each is in exactly one of whole, trimmed and missing.
struct PeerDelivery {
  std::uint64_t packets = 0;
  std::uint64_t whole = 0;
  std::uint64_t trimmed = 0;
  std::uint64_t missing = 0;
  bool late = false;  // a deadline passed before it had sent its part

  void add(const transport::ReceiveReport& report) {
    packets += report.packets;
    whole += report.whole;
    trimmed += report.trimmed();
    missing += report.missing();
    late = late || report.outcome == transport::Outcome::kDeadline;
  }
};

// A shard of a tolerant all-reduce, as far as this rank knows. With deadlines or error feedback the
// owners tell all ranks. Without, a rank is left out only by losses within the bound, which this
// rank knows for the shards it owns.
struct ShardDelivery {
  std::uint16_t shard = 0;
  std::uint16_t owner = 0;
  Extent extent;                   // elements of the tensor
  std::uint16_t contributors = 0;  // ranks in the part of its sum that has the fewest; 0: no sum
};

// The parts of an all-reduce by sums, for the pieces that this rank owns. `clipped` counts in the
// rank's own parts.
struct SumDelivery {
  std::uint64_t added = 0;    // parts that came added up by switches
  std::uint64_t alone = 0;    // parts that came by themselves
  std::uint64_t flushed = 0;  // chunks whose missing parts were asked for
  std::uint64_t clipped = 0;  // coordinates that were too large for the scale
};

// Integers that this rank entropy-coded itself: sums of so many ranks, on any hop.
struct EntropyStep {
  std::uint16_t ranks = 0;
  std::uint64_t values = 0;
  std::uint64_t bytes = 0;   // of messages, their heads and tables included
  std::uint32_t tables = 0;  // messages that needed a table
};

// For an all-reduce with Codec::kSketch; the same at all ranks.
struct SketchDelivery {
  std::uint64_t predicted = 0;    // values expected not to be zero; all in a dense step
  std::uint64_t misses = 0;       // other values that were not zero, at some rank
  std::uint64_t unrecovered = 0;  // misses that are in no sum: zero at all ranks, and owed
};

// For an all-reduce with Codec::kEntropy or kSketch.
struct EntropyDelivery {
  std::vector<EntropyStep> steps;  // by ranks
  std::uint64_t clipped = 0;       // values beyond a predicted scale
  SketchDelivery sketch;

  // Counts the step in with others of as many ranks.
  void add(const EntropyStep& step) {
    auto found = std::lower_bound(
        steps.begin(), steps.end(), step.ranks,
        [](const EntropyStep& at, std::uint16_t ranks) { return at.ranks < ranks; });
    if (found == steps.end() || found->ranks != step.ranks) {
      found = steps.insert(found, EntropyStep{.ranks = step.ranks});
    }
    found->values += step.values;
    found->bytes += step.bytes;
    found->tables += step.tables;
  }

  std::uint64_t values() const { return total(&EntropyStep::values); }
  std::uint64_t bytes() const { return total(&EntropyStep::bytes); }
  std::uint64_t tables() const { return total(&EntropyStep::tables); }

 private:
  template <typename Number>
  std::uint64_t total(Number EntropyStep::*field) const {
    std::uint64_t sum = 0;
    for (const EntropyStep& step : steps) {
      sum += step.*field;
    }
    return sum;
  }
};

// For an exact operation: messages that this rank sent as code (exact/coded_message.h).
struct CodeDelivery {
  std::uint64_t plain_bytes = 0;  // of their values
  std::uint64_t bytes = 0;        // of their code
};

// How long the parts of an operation took at this rank, each summed over all pieces. Pieces
// overlap, so that parts may add up to more than the operation took. For values that a device
// codes, the times are the device's own.
struct PartTimes {
  base::Duration encode{};     // values to messages
  base::Duration to_host{};    // messages that a device made
  base::Duration exchange{};   // from the first message that could leave to the last that came
  base::Duration to_device{};  // messages for a device to read
  base::Duration decode{};     // messages to values, and their sums
  base::Duration waits{};      // for a device that others use

  PartTimes& operator+=(const PartTimes& other) {
    encode += other.encode;
    to_host += other.to_host;
    exchange += other.exchange;
    to_device += other.to_device;
    decode += other.decode;
    waits += other.waits;
    return *this;
  }
};

struct OperationReport {
  std::uint64_t sequence = 0;
  Operation operation;
  Algorithm algorithm = Algorithm::kDirect;  // the one that was used
  // The carrier of its data, where the job could choose.
  transport::Carrier carrier = transport::Carrier::kDatagrams;
  base::Instant queued;
  base::Instant started;
  base::Instant finished;
  std::uint64_t packets_sent = 0;  // retransmissions included
  std::uint64_t packets_repeated = 0;
  std::uint64_t wire_bytes_sent = 0;  // UDP payload, retransmissions included
  // For a tolerant all-reduce:
  std::uint16_t contributors = 0;     // fewest ranks in a shard's sum, empty shards aside
  std::uint16_t empty_shards = 0;     // shards without a sum: their owner was too late
  std::vector<ShardDelivery> shards;  // by shard; at a server, only its own
  // Elements whose sum has no rank in it, in order: zero at all ranks.
  std::vector<Extent> absent;
  EntropyDelivery entropy;
  CodeDelivery code;
  SumDelivery sums;
  PartTimes parts;
  std::uint64_t device_bytes = 0;   // of the tensor, coded by a device
  std::vector<PeerDelivery> peers;  // by rank; this rank's own entry is empty

  std::size_t absent_elements() const {
    std::size_t elements = 0;
    for (const Extent& extent : absent) {
      elements += extent.count;
    }
    return elements;
  }

  // Derives both counts from the shards.
  void count_contributors() {
    contributors = 0;
    empty_shards = 0;
    for (const ShardDelivery& shard : shards) {
      if (shard.contributors == 0) {
        ++empty_shards;
      } else {
        contributors =
            contributors == 0 ? shard.contributors : std::min(contributors, shard.contributors);
      }
    }
  }

  PeerDelivery total() const {
    PeerDelivery sum;
    for (const PeerDelivery& peer : peers) {
      sum.packets += peer.packets;
      sum.whole += peer.whole;
      sum.trimmed += peer.trimmed;
      sum.missing += peer.missing;
      sum.late = sum.late || peer.late;
    }
    return sum;
  }
};

}  // namespace spillway::collective
