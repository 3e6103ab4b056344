// SPDX-License-Identifier: Apache-2.0
//
// Decides which shards of an operation count. All ranks decide the same although some may be late:
// replicas must not differ by what they waited for.
//
// A first coordinator proposes, and a second one if the first is late; a majority makes a proposal
// final. This is Paxos with two ballots, one for each coordinator (Coordinator):
//
//   everybody ── READY: the shards I have ──► first ── PROPOSAL ──► everybody: accepted, or refused
//   first, once a majority has accepted it ── COMMIT ──► everybody
//
//   first is silent for too long: everybody ── READY, with what I accepted from the first, which I
//   refuse from now on ──► second ── PROPOSAL ──► everybody ── ... ── COMMIT ──► everybody
//
// A proposal is the set of shards that every rank has that was ready in time. If any rank has
// accepted the first's proposal, the second proposes that one instead. A late rank finds the
// decision waiting for it. If both coordinators are late, or half of the ranks, the others wait.
//
// A pure state machine: one per operation and rank. Calls say what happened; messages to send are
// handed to an AgreementPort, which delivers them sooner or later, in any order.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "collective/operation.h"
#include "collective/operation_run.h"

namespace spillway::collective {

// A set of shards, one bit each.
using ShardSet = std::vector<std::uint8_t>;

inline ShardSet no_shards(std::uint16_t world) {
  return ShardSet((world + 7U) / 8U, 0);
}
inline bool has_shard(const ShardSet& set, std::uint16_t shard) {
  return (set[shard / 8] >> (shard % 8) & 1) != 0;
}
inline void add_shard(ShardSet& set, std::uint16_t shard) {
  set[shard / 8] = static_cast<std::uint8_t>(set[shard / 8] | 1U << (shard % 8));
}

// The coordinator that proposes: the first, or the second in its place.
enum class Coordinator : std::uint8_t { kFirst = 0, kSecond = 1 };
inline constexpr unsigned kCoordinators = 2;

struct Readiness {
  ShardSet shards;                   // shards that the rank has
  std::optional<ShardSet> accepted;  // to the second: the first's proposal, if accepted
};

class AgreementPort {
 public:
  virtual ~AgreementPort() = default;
  virtual void send_ready(std::uint16_t to, Coordinator coordinator,
                          const Readiness& readiness) = 0;
  // Answered by on_response().
  virtual void send_proposal(std::uint16_t to, Coordinator coordinator, const ShardSet& shards) = 0;
  virtual void send_commit(std::uint16_t to, Coordinator coordinator, const ShardSet& shards) = 0;
  // Refuses a proposal of the first that has not come yet, and tells the first.
  virtual void refuse_first() = 0;
};

class Agreement {
 public:
  // `least`: ranks that must be ready, the coordinator included, before any rank is left behind.
  Agreement(const Group& group, std::uint64_t sequence, std::uint16_t least, AgreementPort& port);

  std::uint16_t coordinator(Coordinator which) const {
    return static_cast<std::uint16_t>((first_ + static_cast<unsigned>(which)) % group_.world);
  }

  // This rank has all that it will wait for.
  void on_own_ready(const ShardSet& shards);
  void on_ready(std::uint16_t from, Coordinator coordinator, const Readiness& readiness);
  // A proposal that was not refused.
  void on_proposal(Coordinator coordinator, const ShardSet& shards);
  // A rank has accepted this coordinator's proposal, or refused it.
  void on_response(Coordinator coordinator, bool accepted);
  void on_commit(const ShardSet& shards);
  // The others had their time to be ready: continues without late ranks, if enough are ready.
  void on_wait_over();
  // The first coordinator had its time to decide.
  void on_first_late();

  bool is_ready() const { return !own_.empty(); }
  const std::optional<ShardSet>& decision() const { return decision_; }

 private:
  struct Ballot {
    std::vector<bool> has_reported;
    std::uint16_t ready = 0;
    ShardSet common;                   // shards that all of them have
    std::optional<ShardSet> accepted;  // the first's proposal, if any of them accepted it
    std::optional<ShardSet> proposal;
    std::uint16_t acceptances = 0;
    bool is_committed = false;  // everybody was told
  };

  bool is_coordinator(Coordinator which) const { return group_.rank == coordinator(which); }
  std::uint16_t majority() const { return static_cast<std::uint16_t>(group_.world / 2 + 1); }
  Ballot& ballot(Coordinator which) { return ballots_[static_cast<std::size_t>(which)]; }
  void count(Coordinator which, std::uint16_t from, const Readiness& readiness);
  bool may_propose(Coordinator which);
  void propose_if_possible(Coordinator which);
  void commit_if_accepted(Coordinator which);

  Group group_;
  std::uint16_t least_;
  AgreementPort& port_;
  std::uint16_t first_;
  ShardSet own_;
  std::array<Ballot, kCoordinators> ballots_;
  std::optional<ShardSet> accepted_;  // the first's proposal, if accepted
  bool asked_second_ = false;
  bool is_wait_over_ = false;
  std::optional<ShardSet> decision_;
};

// An agreement whose messages go through an endpoint: reliable ones of a few bytes, at the highest
// priority, in the note phase of their operation. A proposal counts as accepted when its message
// was received whole, and as refused when its receiver had withdrawn the expectation: the STOP that
// ends every message tells. A rank that has left said neither, and counts as having refused: it may
// have decided otherwise. So before on_first_late() is called, the notes must have been given
// everything that was received earlier.
//
// One thread; lives as long as its operation.

class AgreementNotes final : private AgreementPort {
 public:
  static constexpr wire::Phase kPhase = wire::Phase::kNote;

  // `like`: the id of the operation's messages. All but the id outlive the notes.
  AgreementNotes(const wire::MessageId& like, std::uint16_t least, const RunConfig& config,
                 MessageSet& messages);

  Agreement& agreement() { return agreement_; }
  const Agreement& agreement() const { return agreement_; }

  // Expects every note that may come.
  base::Status start(RunContext& context);
  void on_received(const transport::ReceiveReport& report);
  void on_sent(const transport::SendReport& report);
  // Sends what the agreement has to say; call it after every call into the agreement.
  base::Status flush(RunContext& context);

  // Notes that may be in the endpoint at one time.
  static std::size_t max_messages(std::uint16_t world) { return 8U * world; }

 private:
  using Bytes = std::vector<std::uint8_t>;
  struct Outgoing {
    std::uint16_t to;
    std::uint32_t part;
    Bytes bytes;
  };
  struct Incoming {
    Bytes bytes;
    std::unique_ptr<ByteSink> sink;
  };
  struct Sent {
    Bytes bytes;
    std::unique_ptr<ByteSource> source;
  };

  wire::MessageId id_of(std::uint32_t part, std::uint16_t source) const;
  base::Status expect(std::uint16_t from, std::uint32_t part, RunContext& context);
  base::Status send(const Outgoing& note, RunContext& context);

  // AgreementPort: messages are kept until flush() has an endpoint.
  void send_ready(std::uint16_t to, Coordinator coordinator, const Readiness& readiness) override;
  void send_proposal(std::uint16_t to, Coordinator coordinator, const ShardSet& shards) override;
  void send_commit(std::uint16_t to, Coordinator coordinator, const ShardSet& shards) override;
  void refuse_first() override { refuses_first_ = true; }

  wire::MessageId like_;
  const RunConfig& config_;
  MessageSet& messages_;
  Agreement agreement_;
  bool refuses_first_ = false;  // and the endpoint was not told yet
  std::vector<Outgoing> outgoing_;
  std::deque<Sent> sent_;
  std::unordered_map<std::uint32_t, Incoming> incoming_;  // by part and sender
};

}  // namespace spillway::collective
