// SPDX-License-Identifier: Apache-2.0
//
// Lets a run be part of another one, among some of the ranks, without knowing it. The part counts
// its ranks, the members, and its pieces from 0, and has a signature of its own. On the wire a
// message has the number and the signature of the whole operation, the members' ranks, and a piece
// number that no other part with the same peer and phase uses:
//
//   piece on the wire = piece of the part x parts + number of the part
//
//   MessageScope    translates messages of a part, on their way out and back
//   PartPool        marks a part's jobs, so that the whole operation finds the part again
//   MemberMemory    memory that members share, by their numbers as members
//
// A packet's seeds, and what its receiver expects, follow the part's own numbers, so a sink sees
// packets as the part named them.
//
// One thread, the engine's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collective/operation_run.h"

namespace spillway::collective {

// The ranks of a part, by member.
class Members {
 public:
  explicit Members(std::vector<std::uint16_t> ranks) : ranks_(std::move(ranks)) {}

  std::uint16_t count() const { return static_cast<std::uint16_t>(ranks_.size()); }
  std::uint16_t rank(std::uint16_t member) const { return ranks_[member]; }
  std::optional<std::uint16_t> member(std::uint16_t rank) const {
    const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
    return found == ranks_.end()
               ? std::nullopt
               : std::optional(static_cast<std::uint16_t>(found - ranks_.begin()));
  }

 private:
  std::vector<std::uint16_t> ranks_;
};

// Which part of which operation.
struct PartName {
  std::uint64_t operation = 0;  // number and signature on the wire
  std::uint64_t signature = 0;
  std::uint16_t part = 0;
  std::uint16_t parts = 1;
};

// Number and signature that a part gave itself.
struct OwnName {
  std::uint64_t operation = 0;
  std::uint64_t signature = 0;
};

class MessageScope {
 public:
  // The members outlive the scope.
  MessageScope(const Members& members, const PartName& name, const OwnName& own)
      : members_(members), name_(name), own_(own) {}

  // ---- from the part to the endpoint
  base::Status expect(transport::ReceiveOptions options, RunContext& context);
  base::Status send(transport::SendOptions options, RunContext& context);
  void withdraw(const wire::MessageId& id, std::uint16_t peer, RunContext& context);
  void cancel(const wire::MessageId& id, RunContext& context);

  // ---- from the endpoint to the part
  transport::ReceiveReport inward(const transport::ReceiveReport& report);
  transport::SendReport inward(const transport::SendReport& report) const;
  wire::MessageId inward(const wire::MessageId& id) const;

 private:
  // Shows the part's sink its own names.
  class NamingSink final : public transport::PayloadSink {
   public:
    NamingSink(transport::PayloadSink& sink, const wire::MessageId& name)
        : sink_(sink), name_(name) {}

    unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override {
      wire::OpenedPacket named = packet;
      named.header.stamp.message = name_;
      return sink_.take(named, bytes);
    }

   private:
    transport::PayloadSink& sink_;
    wire::MessageId name_;
  };
  struct Hash {
    std::size_t operator()(const wire::MessageId& id) const {
      return transport::hash_of(transport::MessageKey{id, id.source});
    }
  };

  wire::MessageId outward(wire::MessageId id) const;

  const Members& members_;
  PartName name_;
  OwnName own_;
  std::unordered_map<wire::MessageId, std::unique_ptr<NamingSink>, Hash> sinks_;  // on the wire
};

class PartPool final : public ComputePool {
 public:
  // Jobs of the operation with this key, from one of `parts` parts.
  PartPool(std::uint64_t key, std::uint32_t part, std::uint32_t parts)
      : key_(key), part_(part), parts_(parts) {}

  // For one call into the part.
  ComputePool& over(ComputePool& pool) {
    pool_ = &pool;
    return *this;
  }
  void submit(ComputeJob& job) override {
    job.operation = key_;
    job.tag = job.tag * parts_ + part_;
    pool_->submit(job);
  }

 private:
  std::uint64_t key_;
  std::uint32_t part_;
  std::uint32_t parts_;
  ComputePool* pool_ = nullptr;
};

class MemberMemory final : public PeerMemory {
 public:
  // Both outlive it.
  MemberMemory(PeerMemory& memory, const Members& members) : memory_(memory), members_(members) {}

  bool is_local_rank(std::uint16_t peer) const override {
    return memory_.is_local_rank(members_.rank(peer));
  }
  bool is_read_by(std::uint16_t peer) const override {
    return memory_.is_read_by(members_.rank(peer));
  }
  std::optional<std::uint64_t> stage(base::ByteView bytes) override { return memory_.stage(bytes); }
  void release(std::uint64_t offset) override { memory_.release(offset); }
  bool read(std::uint16_t peer, const MemoryPlace& place, base::MutableByteView to) override {
    return memory_.read(members_.rank(peer), place, to);
  }
  const std::optional<MemoryFailure>& failure() const override { return memory_.failure(); }

 private:
  PeerMemory& memory_;
  const Members& members_;
};

}  // namespace spillway::collective
