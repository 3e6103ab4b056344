// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant/agreement.h"

#include <algorithm>

#include "base/check.h"

namespace spillway::collective {

Agreement::Agreement(const Group& group, std::uint64_t sequence, std::uint16_t least,
                     AgreementPort& port)
    : group_(group),
      least_(least),
      port_(port),
      first_(static_cast<std::uint16_t>(sequence % group.world)) {
  SPILLWAY_CHECK(group.world >= 2);
  for (Ballot& each : ballots_) {
    each.heard.resize(group.world);
  }
}

void Agreement::count(Chair which, std::uint16_t from, const Readiness& readiness) {
  Ballot& votes = ballot(which);
  const ShardSet& shards = readiness.shards;
  if (votes.heard[from] || shards.size() != no_shards(group_.world).size()) {
    return;
  }
  votes.heard[from] = true;
  if (readiness.taken) {
    votes.taken = readiness.taken;
  }
  if (votes.ready++ == 0) {
    votes.common = shards;
    return;
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    votes.common[i] = static_cast<std::uint8_t>(votes.common[i] & shards[i]);
  }
}

void Agreement::on_own_ready(const ShardSet& shards) {
  SPILLWAY_CHECK(own_.empty());
  own_ = shards;
  if (holds(Chair::kFirst)) {
    count(Chair::kFirst, group_.rank, {own_, std::nullopt});
    propose_if_possible(Chair::kFirst);
  } else {
    port_.send_ready(chair(Chair::kFirst), Chair::kFirst, {own_, std::nullopt});
  }
}

void Agreement::on_ready(std::uint16_t from, Chair which, const Readiness& readiness) {
  count(which, from, readiness);
  if (which == Chair::kSecond && decision_) {
    if (!ballot(which).is_committed) {
      port_.send_commit(from, which, *decision_);  // the first's decision, made before they asked
    }
    return;
  }
  propose_if_possible(which);
}

// All ranks are ready (except the first, if the second asks), or enough are and time is up. The
// second needs a majority that refuses the first from now on.
bool Agreement::may_propose(Chair which) {
  const Ballot& votes = ballot(which);
  if (!holds(which) || decision_ || votes.proposal || !is_ready()) {
    return false;
  }
  const bool is_second = which == Chair::kSecond;
  if (is_second && (!asked_second_ || votes.ready < majority())) {
    return false;
  }
  const bool without_first = is_second && !votes.heard[chair(Chair::kFirst)];
  const unsigned all = group_.world - (without_first ? 1U : 0U);
  return votes.ready >= all ||
         (patience_is_over_ && votes.ready >= std::min<unsigned>(least_, all));
}

void Agreement::propose_if_possible(Chair which) {
  if (!may_propose(which)) {
    return;
  }
  Ballot& votes = ballot(which);
  votes.proposal = votes.taken.value_or(votes.common);
  for (std::uint16_t rank = 0; rank < group_.world; ++rank) {
    if (rank != group_.rank) {
      port_.send_proposal(rank, which, *votes.proposal);
    }
  }
  // This rank takes its own proposal, unless it has promised the second otherwise.
  const bool takes = which == Chair::kSecond || !asked_second_;
  if (takes && which == Chair::kFirst) {
    taken_ = votes.proposal;
  }
  votes.takers = static_cast<std::uint16_t>(votes.takers + (takes ? 1 : 0));
  commit_if_taken(which);
}

void Agreement::on_proposal(Chair which, const ShardSet& shards) {
  if (which == Chair::kFirst) {
    taken_ = shards;
  }
}

void Agreement::on_answer(Chair which, bool took) {
  ballot(which).takers = static_cast<std::uint16_t>(ballot(which).takers + (took ? 1 : 0));
  commit_if_taken(which);
}

void Agreement::commit_if_taken(Chair which) {
  Ballot& votes = ballot(which);
  if (decision_ || !votes.proposal || votes.takers < majority()) {
    return;
  }
  decision_ = votes.proposal;
  votes.is_committed = true;
  for (std::uint16_t rank = 0; rank < group_.world; ++rank) {
    if (rank != group_.rank) {
      port_.send_commit(rank, which, *decision_);
    }
  }
}

void Agreement::on_commit(const ShardSet& shards) {
  if (!decision_) {
    decision_ = shards;
  }
}

void Agreement::on_patience_over() {
  patience_is_over_ = true;
  propose_if_possible(Chair::kFirst);
  propose_if_possible(Chair::kSecond);
}

void Agreement::on_first_late() {
  if (decision_ || asked_second_ || !is_ready()) {
    return;
  }
  asked_second_ = true;
  port_.refuse_first();
  if (holds(Chair::kSecond)) {
    count(Chair::kSecond, group_.rank, {own_, taken_});
    propose_if_possible(Chair::kSecond);
  } else {
    port_.send_ready(chair(Chair::kSecond), Chair::kSecond, {own_, taken_});
  }
}

}  // namespace spillway::collective
