// SPDX-License-Identifier: Apache-2.0
//
// Decides which shards of an operation count. All ranks decide the same although some may be late:
// replicas must not differ by what they waited for.
//
// A first coordinator proposes, and a second one if the first is late; a majority makes a proposal
// final. This is Paxos with two ballots, one for each coordinator (Chair):
//
//   everybody ── READY: the shards I have ──► first ── PROPOSAL ──► everybody: taken, or refused
//   first, once a majority has taken it ── COMMIT ──► everybody
//
//   first is silent for too long: everybody ── READY, with what I took from the first, which I
//   refuse from now on ──► second ── PROPOSAL ──► everybody ── ... ── COMMIT ──► everybody
//
// A proposal is the set of shards that every rank has that was ready in time. If any rank has taken
// the first's proposal, the second proposes that one instead. A late rank finds the decision
// waiting for it. If both coordinators are late, or half of the ranks, the others wait.
//
// A pure state machine: one per operation and rank. Calls say what happened; messages to send are
// handed to an AgreementPort, which delivers them sooner or later, in any order.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "collective/operation.h"

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
enum class Chair : std::uint8_t { kFirst = 0, kSecond = 1 };
inline constexpr unsigned kChairs = 2;

struct Readiness {
  ShardSet shards;                // shards that the rank has
  std::optional<ShardSet> taken;  // to the second: the first's proposal, if taken
};

class AgreementPort {
 public:
  virtual ~AgreementPort() = default;
  virtual void send_ready(std::uint16_t to, Chair chair, const Readiness& readiness) = 0;
  // Answered by on_answer().
  virtual void send_proposal(std::uint16_t to, Chair chair, const ShardSet& shards) = 0;
  virtual void send_commit(std::uint16_t to, Chair chair, const ShardSet& shards) = 0;
  // Refuses a proposal of the first that has not come yet, and tells the first.
  virtual void refuse_first() = 0;
};

class Agreement {
 public:
  // `least`: ranks that must be ready, the coordinator included, before any rank is left behind.
  Agreement(const Group& group, std::uint64_t sequence, std::uint16_t least, AgreementPort& port);

  std::uint16_t chair(Chair which) const {
    return static_cast<std::uint16_t>((first_ + static_cast<unsigned>(which)) % group_.world);
  }

  // This rank has all that it will wait for.
  void on_own_ready(const ShardSet& shards);
  void on_ready(std::uint16_t from, Chair chair, const Readiness& readiness);
  // A proposal that was not refused.
  void on_proposal(Chair chair, const ShardSet& shards);
  // A rank has taken this coordinator's proposal, or refused it.
  void on_answer(Chair chair, bool took);
  void on_commit(const ShardSet& shards);
  // The others had their time to be ready: continues without late ranks, if enough are ready.
  void on_patience_over();
  // The first coordinator had its time to decide.
  void on_first_late();

  bool is_ready() const { return !own_.empty(); }
  const std::optional<ShardSet>& decision() const { return decision_; }

 private:
  struct Ballot {
    std::vector<bool> heard;
    std::uint16_t ready = 0;
    ShardSet common;                // shards that all of them have
    std::optional<ShardSet> taken;  // the first's proposal, if any of them took it
    std::optional<ShardSet> proposal;
    std::uint16_t takers = 0;
    bool is_committed = false;  // everybody was told
  };

  bool holds(Chair which) const { return group_.rank == chair(which); }
  std::uint16_t majority() const { return static_cast<std::uint16_t>(group_.world / 2 + 1); }
  Ballot& ballot(Chair which) { return ballots_[static_cast<std::size_t>(which)]; }
  void count(Chair which, std::uint16_t from, const Readiness& readiness);
  bool may_propose(Chair which);
  void propose_if_possible(Chair which);
  void commit_if_taken(Chair which);

  Group group_;
  std::uint16_t least_;
  AgreementPort& port_;
  std::uint16_t first_;
  ShardSet own_;
  std::array<Ballot, kChairs> ballots_;
  std::optional<ShardSet> taken_;  // the first's proposal, if taken
  bool asked_second_ = false;
  bool patience_is_over_ = false;
  std::optional<ShardSet> decision_;
};

}  // namespace spillway::collective
