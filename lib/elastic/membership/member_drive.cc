// SPDX-License-Identifier: Apache-2.0
//
// Member: the driver. What it gathers, proposes and concludes.
#include <algorithm>

#include "elastic/membership/member.h"

namespace spillway::membership {

// ------------------------------------------------------------------ gathering

std::vector<MemberId> Member::waited_for(base::Instant now) const {
  std::vector<MemberId> found;
  const base::Duration others_limit = std::max(config_.silence, config_.answer_limit);
  const auto passed_for = [this, now](MemberId member) {
    const Peer* peer = find_peer(member);
    return now - (peer == nullptr ? drive_.since : std::max(drive_.since, peer->since));
  };
  for (const MemberId voter : roster_.voters()) {
    const base::Duration limit = roster_.has_rank(voter) ? config_.park_limit : others_limit;
    if (is_in_reach(voter) && !drive_.parked.contains(voter) && passed_for(voter) < limit) {
      found.push_back(voter);
    }
  }
  for (const auto& [id, applicant] : applicants_) {
    if (is_in_reach(id) && !drive_.parked.contains(id) && passed_for(id) < others_limit) {
      found.push_back(id);
    }
  }
  return found;
}

// True if others have more voters in reach: peers that only the driver lost may come back to it.
bool Member::is_worse_off() const {
  const std::size_t own = voters_in_reach();
  return std::ranges::any_of(drive_.reach, [this, own](const auto& reach) {
    return drive_.parked.contains(reach.first) && roster_.has(reach.first) && reach.second > own;
  });
}

void Member::advance_drive(base::Instant now) {
  // The driver waits for a step's edge as long as nothing is wrong and steps end.
  if (drive_.phase == Phase::kGathering && drive_.at_step &&
      (is_urgent() || now - drive_.since > config_.park_limit / 2)) {
    drive_.since = now;
    hurry();
  }
  if (now >= drive_.repeat_at) {
    drive_.repeat_at = now + config_.answer_limit;
    for (const auto& [id, peer] : peers_) {
      if (drive_.phase == Phase::kGathering && !drive_.parked.contains(id)) {
        halt(id);
      } else if (drive_.phase == Phase::kAccepting && !drive_.accepted.contains(id)) {
        repeat(id, now);
      }
    }
  }
  if (drive_.phase == Phase::kAccepting) {
    conclude_if_accepted(now);
    return;
  }
  std::size_t voters = 0;
  std::size_t ranks = 0;
  for (const auto& [id, present] : drive_.parked) {
    voters += roster_.has(id) ? 1 : 0;
    ranks += roster_.has_rank(id) ? 1 : 0;
  }
  const bool has_first = drive_.parked.contains(roster_.voters().front());
  if (!roster_.is_quorum(voters, has_first) || (ranks == 0 && !drive_.best) ||
      !waited_for(now).empty()) {
    return;
  }
  // Wait for connections to come back if this change, like the last ones, would change nothing, or
  // if others have more voters in reach.
  const std::int64_t pauses = ranks == roster_.rank_count() ? fruitless_ : 0;
  const base::Duration pause =
      config_.answer_limit * std::max<std::int64_t>(pauses, is_worse_off() ? 1 : 0);
  if (now - std::max(drive_.since, reach_changed_) >= pause) {
    propose(now);
  }
}

std::size_t Member::spares() const {
  const auto standbys = std::ranges::count_if(view_.standbys, [this](MemberId standby) {
    const Peer* peer = find_peer(standby);
    return standby == self_ || (peer != nullptr && peer->reach == Reach::kConnected);
  });
  return static_cast<std::size_t>(standbys) + applicants_.size();
}

// For changes that change nothing: a rank is alive, but some others cannot reach it. Returns the
// rank that has trouble with the most others, whichever side reports it. The last one wins a tie; 0
// if no rank has trouble.
MemberId Member::worst_connected() const {
  std::map<MemberId, std::set<MemberId>> trouble;
  for (const auto& [target, accusers] : accusers_) {
    for (const MemberId accuser : accusers) {
      if (accuser != target) {
        trouble[target].insert(accuser);
        trouble[accuser].insert(target);
      }
    }
  }
  MemberId found = 0;
  std::size_t most = 1;
  for (const MemberId rank : view_.ranks) {
    const auto at = trouble.find(rank);
    if (at != trouble.end() && at->second.size() >= most) {
      most = at->second.size();
      found = rank;
    }
  }
  return found;
}

Findings Member::findings() {
  Findings findings{.view = view_, .otherwise = drive_.why, .size = config_.size};
  const MemberId unreachable = fruitless_ >= kMaxFruitless ? worst_connected() : 0;
  for (const MemberId voter : roster_.voters()) {
    const auto parked = drive_.parked.find(voter);
    if (voter == unreachable) {
      findings.gone.emplace_back(voter, "others cannot reach it");
    } else if (parked != drive_.parked.end()) {
      findings.present.push_back(parked->second);
    } else {
      findings.gone.emplace_back(voter, loss_text(voter));
    }
  }
  for (const auto& [id, present] : drive_.parked) {
    if (!roster_.has(id)) {
      findings.present.push_back(present);
    }
  }
  for (const Wanted& wanted : wanted_) {
    findings.requests.push_back(wanted.request);
  }
  for (std::uint8_t& byte : findings.nonce) {
    byte = static_cast<std::uint8_t>(random_.next_word());
  }
  return findings;
}

// ------------------------------------------------------------------ proposing

void Member::propose(base::Instant now) {
  drive_.proposal = drive_.best ? *drive_.best : choose(findings());
  drive_.phase = Phase::kAccepting;
  drive_.since = now;
  drive_.repeat_at = now + config_.answer_limit;
  drive_.accepted = {self_};
  accepted_ballot_ = drive_.ballot;
  accepted_ = drive_.proposal;
  for (const MemberId voter : roster_.voters()) {
    send(voter, Accept{view_.epoch, drive_.ballot, drive_.proposal});
  }
  conclude_if_accepted(now);
}

void Member::conclude_if_accepted(base::Instant now) {
  const bool has_first = drive_.accepted.contains(roster_.voters().front());
  if (!roster_.is_quorum(drive_.accepted.size(), has_first)) {
    return;
  }
  const Decision decision = drive_.proposal;
  for (const auto& [id, peer] : peers_) {
    if (drive_.accepted.contains(id)) {
      send(id, Chosen{view_.epoch, drive_.ballot});
    } else if (roster_.has(id) || applicants_.contains(id)) {
      send(id, Verdict{decision});
    }
  }
  adopt(decision, now);
}

}  // namespace spillway::membership
