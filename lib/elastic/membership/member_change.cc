// SPDX-License-Identifier: Apache-2.0
//
// Member: changes. Whether one is needed, which member drives it, and what a decision does.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "elastic/membership/member.h"

namespace spillway::membership {

namespace {

constexpr std::size_t kMaxTurns = 8;  // answer limits that a member waits for its turn, at most

base::Duration share_of(base::Duration duration, double share) {
  return base::Duration(static_cast<std::int64_t>(static_cast<double>(duration.count()) * share));
}

}  // namespace

// Acts on whatever has changed.
void Member::evaluate(base::Instant now) {
  if (!is_voter()) {
    return;
  }
  if (is_done()) {
    end_job();
    return;
  }
  const base::Duration limit =
      config_.park_limit * 2 + config_.quorum_limit * 2 + config_.answer_limit * kMaxTurns;
  if (needed_since_ && now - *needed_since_ > limit) {
    dismiss(fmt::format("no decision in {} s: this process waited for {}",
                        limit.count() / 1'000'000'000, waits_for(now)));
    return;
  }
  if (drive_.phase == Phase::kIdle) {
    consider_driving(now);
  } else {
    advance_drive(now);
  }
}

bool Member::is_done() const {
  const auto has_ended = [this](MemberId rank) {
    const Peer* peer = find_peer(rank);
    return rank == self_ ? has_finished_
                         : peer != nullptr && (peer->has_finished || peer->reach == Reach::kLost);
  };
  return finished_count_ == roster_.rank_count() ||
         (has_heard_done_ && std::ranges::all_of(view_.ranks, has_ended));
}

void Member::end_job() {
  const std::optional<std::uint32_t> index = roster_.index_of(self_);
  for (const MemberId watcher : index ? roster_.watchers_of(*index) : std::vector<MemberId>()) {
    send(watcher, Done{view_.epoch});
  }
  for (const auto& [newcomer, applicant] : applicants_) {
    send(newcomer, DismissNotice{view_.epoch, std::string(kJobDone)});
  }
  dismiss(std::string(kJobDone));
}

// True if training cannot continue or has stopped. A standby only reports losses to the ranks.
bool Member::is_urgent() const {
  if (!accusers_.empty()) {
    return true;
  }
  if (standing_ != Standing::kRank) {
    return false;
  }
  if (training_ != Training::kRunning && promised_ == 0) {
    return true;
  }
  if (lost_count_ == 0) {
    return false;
  }
  for (std::uint32_t rank = 0; rank < roster_.rank_count(); ++rank) {
    if (!counts(rank)) {
      return true;
    }
  }
  return !may_decide();
}

bool Member::is_planned() const {
  return !pending_requests_.empty() || (is_quorum_at_risk() && drivers(1).front() == self_);
}

// True if one more loss could cost the quorum and a new view would help, because it drops lost
// standbys or admits newcomers.
bool Member::is_quorum_at_risk() const {
  const auto most_lost = static_cast<std::size_t>(lost_count_);  // some may not be voters
  if ((lost_count_ == 0 && applicants_.empty()) || roster_.size() > 2 * (most_lost + 1)) {
    return false;
  }
  std::size_t lost = 0;
  for (std::uint32_t i = 0; i < roster_.size(); ++i) {
    lost += counts(i) ? 0 : 1;
  }
  const std::size_t left = roster_.size() - lost;
  return (lost > 0 || !applicants_.empty()) && 2 * (left - 1) <= roster_.size();
}

std::string Member::reason() const {
  for (const MemberId voter : roster_.voters()) {
    const Peer* peer = find_peer(voter);
    if (peer != nullptr && peer->reach == Reach::kLost && !peer->has_finished) {
      return fmt::format("{} is gone: {}", name_of(voter), loss_text(voter));
    }
  }
  for (const auto& [target, accusers] : accusers_) {
    return accusers.contains(target)
               ? fmt::format("{} stopped: an operation failed", name_of(target))
               : fmt::format("{} cannot reach {}", name_of(*accusers.begin()), name_of(target));
  }
  if (!pending_requests_.empty()) {
    return pending_requests_.front().request.why.empty() ? "a change was asked for"
                                                         : pending_requests_.front().request.why;
  }
  return is_quorum_at_risk()
             ? "newcomers are taken in, the lost struck off: few members were left to decide"
             : "";
}

// ------------------------------------------------------------------ turns to drive

void Member::consider_driving(base::Instant now) {
  const bool is_needed = promised_ != 0 || is_urgent();
  if (!is_needed && !is_planned()) {
    needed_since_.reset();
    return;
  }
  if (!needed_since_) {
    needed_since_ = now;
    turn_since_ = now;
  }
  if (driver_ != 0 && driver_ != self_) {
    if (now - driver_heard_ <= config_.silence) {
      return;
    }
    driver_ = 0;
    turn_since_ = now;
  }
  if (!may_decide()) {
    stop_training(std::nullopt, reason());
    return;
  }
  const std::vector<MemberId> order = drivers();
  const auto turn = is_needed ? std::ranges::find(order, self_) - order.begin() : 0;
  const base::Duration wait = turn == 0
                                  ? base::Duration()
                                  : config_.answer_limit * std::min<std::int64_t>(turn, kMaxTurns) +
                                        share_of(config_.answer_limit, random_.next_unit() / 4);
  if (now - turn_since_ >= wait) {
    begin_drive(now);
  }
}

void Member::begin_drive(base::Instant now) {
  const std::optional<std::uint32_t> index = roster_.index_of(self_);
  if (!index || greatest_round_ >= kMaxRound || round_of(promised_) >= kMaxRound) {
    return;
  }
  const bool is_needed = promised_ != 0 || is_urgent();
  greatest_round_ = std::max(greatest_round_, round_of(promised_)) + 1;
  drive_ = {.phase = Phase::kGathering,
            .ballot = make_ballot(greatest_round_, *index),
            .since = now,
            .resend_at = now + config_.answer_limit,
            .at_step = is_needed ? std::nullopt : std::optional(greatest_step_ + 2),
            .why = reason(),
            .best_ballot = accepted_ballot_,
            .best = accepted_};
  promised_ = drive_.ballot;
  driver_ = self_;
  stop_training(drive_.at_step, drive_.why);
  report_parked();
  for (auto& [id, peer] : peers_) {
    peer.since = peer.doubt == Doubt::kAccused ? peer.since : now;
    halt(id);
  }
  advance_drive(now);
}

void Member::halt(MemberId peer) {
  if (roster_.has(peer) || applicants_.contains(peer)) {
    send(peer, Halt{view_.epoch, drive_.ballot, drive_.at_step, drive_.why});
  }
}

// Halts at once: there is no time to end steps.
void Member::halt_at_once() {
  drive_.at_step.reset();
  stop_training(std::nullopt, drive_.why);
  for (const auto& [id, peer] : peers_) {
    if (!drive_.parked.contains(id)) {
      halt(id);
    }
  }
}

// For a peer that has just connected, or was just told what it missed.
void Member::resend(MemberId peer, base::Instant now) {
  if (drive_.phase == Phase::kGathering) {
    peers_[peer].since = now;
    halt(peer);
  } else if (drive_.phase == Phase::kAccepting && roster_.has(peer)) {
    send(peer, Accept{view_.epoch, drive_.ballot, drive_.proposal});
  }
}

void Member::resign(base::Instant now) {
  drive_ = {};
  driver_ = driver_ == self_ ? 0 : driver_;
  turn_since_ = now + share_of(config_.answer_limit, 0.5 + random_.next_unit());
}

bool Member::is_driver_of(MemberId from, Ballot ballot) const {
  return roster_.index_of(from) == driver_index_of(ballot);
}

// ------------------------------------------------------------------ deciding

// Draws a point that no member knew when the decision was made.
void Member::send_fingerprint(const std::set<MemberId>& whom) {
  std::uint64_t point = 0;
  if (config_.secret_word) {
    point = config_.secret_word();
  } else {
    const std::uint64_t upper = random_.next_word();
    point = upper << 32U | random_.next_word();
  }
  if (const std::optional<Fingerprint> followed = forks_.fingerprint(point)) {
    for (const MemberId member : whom) {
      send(member, *followed);
    }
  }
}

// Members of the present view to compare decisions with; none if this process has no place in it.
std::set<MemberId> Member::compared_with() const {
  const std::optional<std::uint32_t> index = roster_.index_of(self_);
  const std::vector<MemberId> found =
      index ? roster_.compared_with(*index) : std::vector<MemberId>();
  return {found.begin(), found.end()};
}

// Sends both decisions' fingerprints to all connected peers: one of the two contradicts whichever
// decision a peer follows.
void Member::end_split_job(const Fingerprint& other) {
  std::set<MemberId> all;
  for (const auto& [id, peer] : peers_) {
    all.insert(id);
    send(id, other);
  }
  send_fingerprint(all);
  dismiss(
      fmt::format("members follow different decisions about epoch {}: one of them is broken or "
                  "lies. The job has ended so that it is not split",
                  other.epoch));
}

// A voter knows itself when the job is done, because all ranks have said so. A decision or
// dismissal that claims it earlier is a lie.
std::string Member::refuted(const std::string& why) const {
  return is_voter() && why == kJobDone
             ? "a member ended the job as if it were done, and it is not: that member is broken or "
               "lies. Start the job again without it"
             : why;
}

void Member::adopt(const Decision& decided, base::Instant now) {
  if (const std::optional<Fingerprint> other = forks_.contradiction(decided)) {
    forks_.note(decided);
    end_split_job(*other);
    return;
  }
  Decision decision = decided;
  decision.why = decision.outcome == Outcome::kEnds ? refuted(decided.why) : decided.why;
  std::erase_if(events_,
                [](const Event& event) { return std::holds_alternative<Interrupt>(event); });
  const bool is_member = decision.view.has(self_);
  const bool changes_nothing =
      decision.view.ranks == view_.ranks && last_ && decision.step == last_->step;
  last_ = decided;
  forks_.note(decided);
  const std::set<MemberId> compared = compared_with();
  if (is_voter()) {
    send_fingerprint(compared);
    former_ = roster_;
    answer_own_requests(view_, decision);
  }
  if (is_member) {
    events_.push_back(Decided{decision});
  }
  if (decision.outcome == Outcome::kEnds) {
    dismiss(decision.why);
    return;
  }
  if (!is_member && is_voter()) {
    dismiss(fmt::format("this process has no place in epoch {}: {}", decision.view.epoch,
                        decision.why));
    return;
  }
  changes_without_effect_ = changes_nothing ? changes_without_effect_ + 1 : 0;
  greatest_step_ = decision.step;
  settle(decided.view, now);
  forks_.keep_only([this](MemberId id) { return has_voice(id); });
  std::set<MemberId> added;
  std::ranges::set_difference(compared_with(), compared, std::inserter(added, added.end()));
  send_fingerprint(added);
  for (const auto& [id, peer] : peers_) {
    if (is_voter() && peer.reach == Reach::kLost && roster_.has(id)) {
      report_loss(id, peer.cause);
    }
  }
  evaluate(now);
}

// ------------------------------------------------------------------ requests

void Member::add_request(MemberId from, std::uint32_t number, const ChangeRequest& request,
                         base::Instant now) {
  std::string why = objection(request, view_, spares(), config_.size);
  if (pending_requests_.size() >= kMaxAsked) {
    why = "too many requests wait: ask again later";
  }
  if (!why.empty()) {
    refuse_request(from, number, why);
    return;
  }
  pending_requests_.push_back({from, number, request});
  evaluate(now);
}

void Member::refuse_request(MemberId from, std::uint32_t number, const std::string& why) {
  if (from != self_) {
    send(from, RequestRefused{view_.epoch, number, why});
  } else if (std::erase_if(own_requests_,
                           [number](const OwnRequest& a) { return a.number == number; }) > 0) {
    events_.push_back(Answered{.text = why, .ok = false});
  }
}

// Member: the driver. It gathers promises, proposes and concludes.

// ------------------------------------------------------------------ gathering

std::vector<MemberId> Member::awaited(base::Instant now) const {
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
    halt_at_once();
  }
  if (now >= drive_.resend_at) {
    drive_.resend_at = now + config_.answer_limit;
    for (const auto& [id, peer] : peers_) {
      if (drive_.phase == Phase::kGathering && !drive_.parked.contains(id)) {
        halt(id);
      } else if (drive_.phase == Phase::kAccepting && !drive_.accepted.contains(id)) {
        resend(id, now);
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
      !awaited(now).empty()) {
    return;
  }
  // Wait for connections to come back if this change, like the last ones, would change nothing, or
  // if others have more voters in reach.
  const std::int64_t pauses = ranks == roster_.rank_count() ? changes_without_effect_ : 0;
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
  const MemberId unreachable =
      changes_without_effect_ >= kMaxChangesWithoutEffect ? worst_connected() : 0;
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
  for (const PendingRequest& wanted : pending_requests_) {
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
  drive_.resend_at = now + config_.answer_limit;
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
      send(id, DecisionNotice{decision});
    }
  }
  adopt(decision, now);
}

}  // namespace spillway::membership
