// SPDX-License-Identifier: Apache-2.0
//
// Member: incoming messages. Whether one belongs to this epoch, and what it does.
#include <fmt/format.h>

#include <algorithm>

#include "elastic/membership/member.h"

namespace spillway::membership {

void Member::send(MemberId to, const Message& message) {
  const Peer* peer = find_peer(to);
  if (peer != nullptr && peer->is_open) {
    outbox_.push_back({to, encode(message)});
  }
}

void Member::send_hello(MemberId to) {
  send(to, Hello{.epoch = view_.epoch,
                 .is_newcomer = standing_ == Standing::kNewcomer,
                 .is_warm = position_.is_warm,
                 .handle = handle_});
}

// Tells a peer of another epoch what it missed, at most once per answer limit.
void Member::send_missed_decision(MemberId peer, base::Instant now) {
  Peer& state = peers_[peer];
  if (standing_ == Standing::kNewcomer ||
      (state.told && now - *state.told < config_.answer_limit)) {
    return;
  }
  state.told = now;
  if (roster_.has(peer) && last_) {
    send(peer, DecisionNotice{*last_});
    resend(peer, now);
  } else if (applicants_.contains(peer)) {
    send(peer, Welcome{view_});
  } else if (!roster_.has(peer)) {
    send(peer,
         DismissNotice{view_.epoch, fmt::format("the job is in epoch {}, without this process{}",
                                                view_.epoch, last_ ? ": " + last_->why : "")});
  }
}

void Member::on_message(MemberId from, base::ByteView message, base::Instant now) {
  Peer* peer = find_peer(from);
  const std::optional<Message> parsed =
      peer != nullptr && peer->is_open ? parse_message(message) : std::nullopt;
  if (!parsed) {
    ++refused_messages_;
    return;
  }
  if (standing_ == Standing::kOver) {
    if (last_ && last_->outcome == Outcome::kEnds && !peer->told) {
      peer->told = now;
      send(from, DecisionNotice{*last_});
    }
    return;
  }
  peer->heard = now;
  if (peer->reach == Reach::kLost) {
    // The peer was only silent.
    mark(*peer, Reach::kConnected, now);
    peer->since = now;
    resend(from, now);
  }
  std::visit([&](const auto& m) { take(from, m, now); }, *parsed);
}

// True if a message belongs to the present view. Tells a sender that is behind what it missed, and
// asks one that is ahead.
bool Member::is_for_now(MemberId from, std::uint32_t epoch, base::Instant now) {
  if (standing_ == Standing::kNewcomer) {
    return false;
  }
  if (epoch > view_.epoch) {
    ask_for_missed_decisions(from, now);
    return false;
  }
  if (epoch < view_.epoch || (!roster_.has(from) && !applicants_.contains(from))) {
    send_missed_decision(from, now);
    return false;
  }
  return true;
}

// The same for messages that only voters may send.
bool Member::is_for_now_from_voter(MemberId from, std::uint32_t epoch, base::Instant now) {
  return is_for_now(from, epoch, now) && roster_.has(from);
}

// True for voters of this view and of the one before. A newcomer knows no voters yet, so it
// believes the members that let it in.
bool Member::has_voice(MemberId from) const {
  return standing_ == Standing::kNewcomer || roster_.has(from) || former_.has(from);
}

void Member::ask_for_missed_decisions(MemberId from, base::Instant now) {
  Peer* peer = find_peer(from);
  if (peer != nullptr && (!peer->told || now - *peer->told >= config_.answer_limit)) {
    peer->told = now;
    send_hello(from);
  }
}

// ------------------------------------------------------------------ meeting

void Member::take(MemberId from, const Hello& m, base::Instant now) {
  if (m.is_newcomer && !roster_.has(from)) {
    if (standing_ == Standing::kNewcomer || applicants_.size() >= kMaxMembers) {
      return;
    }
    const bool is_new = applicants_.insert_or_assign(from, Applicant{m.is_warm, m.handle}).second;
    if (m.epoch != view_.epoch) {
      send(from, Welcome{view_});
    }
    if (is_new) {
      resend(from, now);
      evaluate(now);
    }
    return;
  }
  applicants_.erase(from);
  if (m.epoch < view_.epoch || (m.is_newcomer && roster_.has(from))) {
    send_missed_decision(from, now);
  }
}

void Member::take(MemberId /*from*/, const Welcome& m, base::Instant now) {
  if (standing_ == Standing::kNewcomer && m.view.epoch > view_.epoch && !m.view.has(self_)) {
    settle(m.view, now);
  }
}

// Passes on the sender's fingerprints, so that others notice a made-up decision.
void Member::take(MemberId from, const DismissNotice& m, base::Instant /*now*/) {
  if (!has_voice(from) || (is_voter() && m.epoch <= view_.epoch)) {
    return;
  }
  for (const Fingerprint& said : forks_.early_of(from)) {
    for (const auto& [id, peer] : peers_) {
      send(id, said);
    }
  }
  dismiss(refuted(m.why));
}

// ------------------------------------------------------------------ watching

void Member::take(MemberId from, const Alive& m, base::Instant now) {
  if (m.wants_answer) {
    send(from, Alive{.epoch = view_.epoch, .step = greatest_step_});
  }
  if (standing_ == Standing::kNewcomer) {
    if (m.ballot != 0 && from == driver_) {
      driver_heard_ = now;
    }
    return;
  }
  if (!is_for_now(from, m.epoch, now)) {
    return;
  }
  greatest_step_ = roster_.has(from) ? std::max(greatest_step_, m.step) : greatest_step_;
  if (m.ballot != 0 && m.ballot == promised_ && from == driver_) {
    driver_heard_ = now;
  }
  if (m.work > base::Duration() && roster_.has_rank(from)) {
    works_[*roster_.index_of(from)] = m.work;
  }
}

void Member::take(MemberId from, const Suspect& m, base::Instant now) {
  if (is_for_now(from, m.epoch, now) && roster_.has(from)) {
    accuse(from, m.member, m.cause, now);
    evaluate(now);
  }
}

void Member::take(MemberId from, const StragglerNotice& m, base::Instant now) {
  const bool is_ours = from == self_ || (is_for_now(from, m.epoch, now) && roster_.has(from));
  if (is_ours && m.rank < roster_.rank_count() && stragglers_.insert(m.rank).second) {
    events_.push_back(StragglerFound{m.rank, m.permille_of_median / 1000.0});
  }
}

void Member::take(MemberId from, const LeaveNotice& m, base::Instant now) {
  Peer& peer = peers_[from];
  if (!m.is_whole) {
    peer.has_left = true;
    applicants_.erase(from);
    lose(from, LossCause::kClosed, now);
    evaluate(now);
  } else if (is_for_now(from, m.epoch, now) && roster_.has_rank(from)) {
    take_finished(peer, now);
  }
}

void Member::take_finished(Peer& peer, base::Instant now) {
  lost_count_ -= peer.reach == Reach::kLost && !peer.has_finished ? 1 : 0;
  note_finished(peer.has_finished, now);
  evaluate(now);
}

// A rank says that all ranks have finished. That vouches for those whose own LeaveNotice can no
// longer come, and for no others: one liar cannot end the job of ranks that are still there.
void Member::take(MemberId from, const Done& m, base::Instant now) {
  if (!is_for_now_from_voter(from, m.epoch, now)) {
    return;
  }
  if (!roster_.has_rank(from) || (standing_ == Standing::kRank && !has_finished_)) {
    ++refused_messages_;
    return;
  }
  has_heard_done_ = true;
  take_finished(peers_[from], now);
}

// ------------------------------------------------------------------ deciding: a voter's part

// Follows the driver of a ballot, unless this voter promised a greater one.
bool Member::promise(MemberId driver, std::uint32_t epoch, Ballot ballot, base::Instant now) {
  if (!is_for_now(driver, epoch, now) || !is_driver_of(driver, ballot)) {
    return false;
  }
  if (ballot < promised_) {
    send(driver, BallotRefused{view_.epoch, promised_});
    return false;
  }
  if (ballot > promised_) {
    promised_ = ballot;
    drive_ = {};
    peers_[driver].since = now;
  }
  driver_ = driver;
  driver_heard_ = now;
  needed_since_ = needed_since_.value_or(now);
  return true;
}

void Member::take(MemberId from, const Halt& m, base::Instant now) {
  if (standing_ == Standing::kNewcomer) {
    // A newcomer is no voter and promises nothing, but it reports that it is there.
    driver_ = from;
    driver_heard_ = now;
    send(from, Parked{.epoch = m.epoch,
                      .ballot = m.ballot,
                      .position = {.has_state = false, .step = 0, .is_warm = position_.is_warm},
                      .handle = handle_});
    return;
  }
  if (!promise(from, m.epoch, m.ballot, now)) {
    return;
  }
  const bool has_begun = step_ && m.at_step && *step_ >= *m.at_step;
  if (m.at_step && training_ == Training::kRunning && (has_begun || has_finished_)) {
    send(from, StepBegun{view_.epoch, m.ballot});
    return;
  }
  stop_training(m.at_step, m.why);
  report_parked();
}

void Member::take(MemberId from, const Accept& m, base::Instant now) {
  if (!promise(from, m.epoch, m.ballot, now)) {
    return;
  }
  accepted_ballot_ = m.ballot;
  accepted_ = m.decision;
  stop_training(std::nullopt, m.decision.why);
  send(from, Accepted{view_.epoch, m.ballot});
}

void Member::take(MemberId from, const Chosen& m, base::Instant now) {
  if (!is_for_now_from_voter(from, m.epoch, now) || !is_driver_of(from, m.ballot)) {
    return;
  }
  if (accepted_ && accepted_ballot_ == m.ballot) {
    const Decision decision = *accepted_;
    adopt(decision, now);
  }
}

// An epoch's places go to members that were parked in the epoch before. So a voter that was not
// left out hears of every decision in order.
void Member::take(MemberId from, const DecisionNotice& m, base::Instant now) {
  const View& view = m.decision.view;
  if (view.epoch <= view_.epoch || !has_voice(from)) {
    return;
  }
  if (is_voter() && view.epoch - view_.epoch > 1 && m.decision.outcome == Outcome::kContinues &&
      view.has(self_)) {
    dismiss(fmt::format(
        "{} names a decision about epoch {} that has a place for this process, which "
        "is in epoch {} and cannot have missed one: a member is broken or lies. "
        "The job has ended here so that it is not split",
        roster_.has(from) ? name_of(from) : "a former member", view.epoch, view_.epoch));
    return;
  }
  adopt(m.decision, now);
}

// ------------------------------------------------------------------ deciding: a driver's part

void Member::take(MemberId from, const StepBegun& m, base::Instant now) {
  if (is_for_now_from_voter(from, m.epoch, now) && drive_.phase == Phase::kGathering &&
      m.ballot == drive_.ballot && drive_.at_step) {
    halt_at_once();
  }
}

void Member::take(MemberId from, const Parked& m, base::Instant now) {
  if (!is_for_now(from, m.epoch, now) || m.ballot != drive_.ballot) {
    return;
  }
  if (drive_.phase == Phase::kAccepting) {
    resend(from, now);
    return;
  }
  if (drive_.phase != Phase::kGathering) {
    return;
  }
  drive_.parked[from] = {from, m.position, m.handle};
  drive_.reach[from] = m.in_reach;
  if (roster_.has(from) && m.accepted && m.accepted_ballot > drive_.best_ballot) {
    drive_.best_ballot = m.accepted_ballot;
    drive_.best = m.accepted;
  }
  advance_drive(now);
}

void Member::take(MemberId from, const Accepted& m, base::Instant now) {
  if (is_for_now_from_voter(from, m.epoch, now) && drive_.phase == Phase::kAccepting &&
      m.ballot == drive_.ballot) {
    drive_.accepted.insert(from);
    conclude_if_accepted(now);
  }
}

void Member::take(MemberId from, const BallotRefused& m, base::Instant now) {
  if (is_for_now_from_voter(from, m.epoch, now) && drive_.phase != Phase::kIdle &&
      m.promised > drive_.ballot) {
    greatest_round_ = std::max(greatest_round_, round_of(m.promised));
    resign(now);
  }
}

// ------------------------------------------------------------------ asking

void Member::take(MemberId from, const ForwardedRequest& m, base::Instant now) {
  if (is_for_now_from_voter(from, m.epoch, now)) {
    add_request(from, m.number, m.request, now);
  }
}

void Member::take(MemberId from, const RequestRefused& m, base::Instant now) {
  if (is_for_now_from_voter(from, m.epoch, now)) {
    refuse_request(self_, m.number, m.why);
  }
}

// ------------------------------------------------------------------ split jobs

void Member::take(MemberId from, const Fingerprint& m, base::Instant now) {
  if (!roster_.has(from) && !former_.has(from)) {
    return;
  }
  const ForkWatch::Comparison found = forks_.compare(from, m, now);
  if (is_voter() && found == ForkWatch::Comparison::kContradicts) {
    end_split_job(m);
  } else if (is_voter() && found == ForkWatch::Comparison::kSkipped) {
    send_missed_decision(from, now);
  }
}

}  // namespace spillway::membership
