// SPDX-License-Identifier: Apache-2.0
//
// Member: which members are in reach. Connections, losses, and which members are told of them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "elastic/membership/member.h"

namespace spillway::membership {

namespace {

// Every loss is reported to this many likely drivers.
constexpr std::size_t kDriversToldOfEveryLoss = 2;

}  // namespace

const Member::Peer* Member::find_peer(MemberId peer) const {
  const std::optional<std::uint32_t> index = roster_.index_of(peer);
  if (index) {
    return voter_peers_[*index];
  }
  const auto at = peers_.find(peer);
  return at == peers_.end() ? nullptr : &at->second;
}

Member::Peer* Member::find_peer(MemberId peer) {
  return const_cast<Peer*>(std::as_const(*this).find_peer(peer));
}

void Member::mark(Peer& peer, Reach reach, base::Instant now) {
  if (!peer.has_finished) {
    lost_count_ += (reach == Reach::kLost ? 1 : 0) - (peer.reach == Reach::kLost ? 1 : 0);
  }
  peer.reach = reach;
  reach_changed_ = now;
}

bool Member::is_in_reach(MemberId member) const {
  const Peer* peer = find_peer(member);
  return member == self_ || (peer != nullptr && peer->reach != Reach::kLost);
}

// True if the voter is in reach or has finished: no decision needs a finished rank.
bool Member::counts(std::uint32_t index) const {
  const Peer* peer = voter_peers_[index];
  return peer == nullptr || peer->reach != Reach::kLost || peer->has_finished;
}

std::size_t Member::voters_in_reach() const {
  return static_cast<std::size_t>(std::ranges::count_if(voter_peers_, [](const Peer* peer) {
    return peer == nullptr || peer->reach != Reach::kLost;
  }));
}

bool Member::may_decide() const {
  if (lost_count_ == 0) {
    return true;
  }
  std::size_t count = 0;
  bool has_rank = false;
  for (std::uint32_t i = 0; i < roster_.size(); ++i) {
    if (counts(i)) {
      ++count;
      has_rank = has_rank || i < roster_.rank_count();
    }
  }
  return has_rank && roster_.is_quorum(count, counts(0));
}

void Member::on_connected(MemberId peer, base::Instant now) {
  if (peer == self_ || peer == 0 || standing_ == Standing::kOver ||
      (peers_.size() >= kMaxPeers && !peers_.contains(peer))) {
    return;
  }
  Peer& state = peers_[peer];
  mark(state, Reach::kConnected, now);
  state.is_open = true;
  state.has_left = false;
  state.since = now;
  state.heard = now;
  state.told.reset();
  send_hello(peer);
  if (roster_.has(peer) || former_.has(peer)) {
    send_fingerprint({peer});
  }
  if (has_finished_) {
    send(peer, LeaveNotice{.epoch = view_.epoch, .is_whole = true});
  }
  resend(peer, now);
  evaluate(now);
}

void Member::on_lost(MemberId peer, LossCause cause, base::Instant now) {
  Peer* state = find_peer(peer);
  if (state == nullptr || standing_ == Standing::kOver) {
    return;
  }
  if (cause == LossCause::kData) {
    accuse(self_, peer, cause, now);
  } else {
    state->is_open = false;
    applicants_.erase(peer);
    lose(peer, cause, now);
  }
  evaluate(now);
}

void Member::lose(MemberId peer, LossCause cause, base::Instant now) {
  Peer& state = peers_[peer];
  if (state.reach == Reach::kLost) {
    return;
  }
  mark(state, Reach::kLost, now);
  state.cause = cause;
  state.doubt = Doubt::kNone;
  drive_.parked.erase(peer);
  if (driver_ == peer) {
    driver_ = 0;
    turn_since_ = now;
  }
  if (is_voter() && roster_.has(peer) && !state.has_finished) {
    report_loss(peer, cause);
    if (driver_ != self_) {
      report_parked();  // again, because the number of voters in reach changed
    }
  }
}

// The watchers of the lost peer and a driver tell all members; others tell only the likely drivers.
void Member::report_loss(MemberId peer, LossCause cause) {
  if (!reported_losses_.insert(peer).second) {
    return;
  }
  const std::optional<std::uint32_t> index = roster_.index_of(peer);
  bool tells_all = drive_.phase != Phase::kIdle;
  if (index) {
    const std::vector<MemberId> watchers = roster_.watchers_of(*index);
    tells_all = tells_all || std::ranges::find(watchers, self_) != watchers.end();
  }
  for (const MemberId other : drivers(tells_all ? kMaxMembers : kDriversToldOfEveryLoss)) {
    if (other != self_ && other != peer) {
      send(other, Suspect{view_.epoch, peer, cause});
    }
  }
}

void Member::accuse(MemberId from, MemberId target, LossCause cause, base::Instant now) {
  if (!is_voter() || !roster_.has(target)) {
    return;
  }
  if (roster_.has_rank(target) && roster_.has_rank(from)) {
    accusers_[target].insert(from);
  }
  if (from == self_) {
    report_loss(target, cause);
    return;
  }
  if (cause == LossCause::kData) {
    return;
  }
  unfit_.insert(target);
  ask_for_heartbeat(target, Doubt::kAccused, now);
}

void Member::ask_for_heartbeat(MemberId from, Doubt doubt, base::Instant now) {
  Peer* peer = find_peer(from);
  if (peer != nullptr && peer->reach == Reach::kConnected && peer->doubt < doubt) {
    peer->doubt = doubt;
    peer->since = now;
    send(from, Alive{.epoch = view_.epoch, .step = greatest_step_, .wants_answer = true});
  }
}

std::vector<MemberId> Member::drivers(std::size_t most) const {
  std::vector<MemberId> found;
  std::vector<MemberId> unfit;
  for (std::uint32_t i = 0; i < roster_.size() && found.size() < most; ++i) {
    const MemberId voter = roster_.voters()[i];
    if (voter_peers_[i] == nullptr || voter_peers_[i]->reach == Reach::kConnected) {
      (unfit_.contains(voter) ? unfit : found).push_back(voter);
    }
  }
  found.insert(found.end(), unfit.begin(), unfit.end());
  found.resize(std::min(found.size(), most));
  return found;
}

std::string Member::loss_text(MemberId member) const {
  const Peer* peer = find_peer(member);
  if (peer == nullptr || peer->reach != Reach::kLost) {
    return "it did not stop its step in time";
  }
  if (peer->has_left) {
    return "it left";
  }
  return peer->cause == LossCause::kClosed
             ? "its connection closed"
             : fmt::format("nothing came from it for {:.1f} s",
                           static_cast<double>(config_.silence.count()) * 1e-9);
}

// Member: work of the heartbeat. Signs of life, silence, limits, stragglers.

namespace {

constexpr std::uint64_t kHellosInTurn = 3;
// Signs of life per `silence` between a driver and the others. An accused peer must give one within
// a single such interval.
constexpr std::int64_t kHeartbeatsPerSilence = 4;

}  // namespace

void Member::on_timeout(base::Instant now) {
  if (now < next_beat_) {
    return;
  }
  if (now - next_beat_ > config_.silence / 2) {
    // This process was stopped: messages that arrived in the meantime are still unread.
    for (auto& [id, peer] : peers_) {
      peer.since = now;
    }
    driver_heard_ = now;
    turn_since_ = now;
    needed_since_ = needed_since_ ? std::optional(now) : std::nullopt;
  }
  next_beat_ = now + config_.heartbeat;
  if (standing_ != Standing::kOver) {
    beat(now);
  }
}

void Member::beat(base::Instant now) {
  ++beats_;
  send_heartbeats();
  check_silence(now);
  check_limits(now);
  ask_members_ahead(now);
  if (beats_ % kBeatsPerReport == 0 && standing_ == Standing::kNewcomer) {
    greet_in_turn(now);
  } else if (beats_ % kBeatsPerReport == 0) {
    check_stragglers(now);
  }
  evaluate(now);
}

void Member::send_heartbeats() {
  const Message sign = Alive{.epoch = view_.epoch,
                             .step = greatest_step_,
                             .work = work_.typical().value_or(base::Duration()),
                             .ballot = drive_.phase == Phase::kIdle ? 0 : drive_.ballot};
  const std::optional<std::uint32_t> index = roster_.index_of(self_);
  if (index) {
    for (const MemberId watcher : roster_.watchers_of(*index)) {
      send(watcher, sign);
    }
  }
  const std::int64_t beats = std::max<std::int64_t>(
      config_.silence.count() / kHeartbeatsPerSilence / config_.heartbeat.count(), 1);
  if (beats_ % static_cast<std::uint64_t>(beats) != 0) {
    return;
  }
  probe_unfinished();
  if (drive_.phase != Phase::kIdle) {
    for (const auto& [id, peer] : peers_) {
      send(id, sign);
    }
  } else if (driver_ != 0) {
    send(driver_, sign);
  }
}

// Once one rank has finished, all members wait for those that have not.
void Member::note_finished(bool& has_finished, base::Instant now) {
  if (has_finished) {
    return;
  }
  has_finished = true;
  if (finished_count_++ == 0) {
    for (auto& [id, peer] : peers_) {
      peer.since = now;
    }
  }
}

void Member::probe_unfinished() {
  if (!is_voter() || finished_count_ == 0) {
    return;
  }
  for (const MemberId rank : view_.ranks) {
    const Peer* peer = find_peer(rank);
    if (peer != nullptr && !peer->has_finished) {
      send(rank, Alive{.epoch = view_.epoch, .step = greatest_step_, .wants_answer = true});
    }
  }
}

// A newcomer asks a few peers in turn whether they are alive and which view is current.
void Member::greet_in_turn(base::Instant now) {
  std::vector<MemberId> open;
  for (const auto& [id, peer] : peers_) {
    if (peer.is_open) {
      open.push_back(id);
    }
  }
  const std::uint64_t turn = beats_ / kBeatsPerReport;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(kHellosInTurn, open.size()); ++i) {
    const MemberId id = open[(turn * kHellosInTurn + i) % open.size()];
    send_hello(id);
    ask_for_heartbeat(id, Doubt::kAsked, now);
  }
}

// True if silence of this peer means that it is lost.
bool Member::is_expected(MemberId peer, const Peer& state) const {
  if (state.doubt != Doubt::kNone || driver_ == peer) {
    return true;
  }
  if (roster_.has_rank(peer) && !state.has_finished && finished_count_ > 0) {
    return true;
  }
  if (drive_.phase == Phase::kGathering && (roster_.has(peer) || applicants_.contains(peer))) {
    return true;
  }
  const std::optional<std::uint32_t> index = roster_.index_of(self_);
  if (!index || !roster_.has(peer)) {
    return false;
  }
  const std::vector<MemberId> watched = roster_.watched_by(*index);
  return std::ranges::find(watched, peer) != watched.end();
}

void Member::check_silence(base::Instant now) {
  std::vector<MemberId> lost;
  for (auto& [id, peer] : peers_) {
    if (peer.reach == Reach::kAwaited && now - peer.since > config_.quorum_limit) {
      lost.push_back(id);
    }
    if (peer.reach != Reach::kConnected) {
      continue;
    }
    if (peer.heard > peer.since) {
      peer.doubt = Doubt::kNone;
    }
    const base::Duration limit =
        peer.doubt == Doubt::kAccused ? config_.silence / kHeartbeatsPerSilence : config_.silence;
    if (now - std::max(peer.heard, peer.since) > limit && is_expected(id, peer)) {
      lost.push_back(id);
    }
  }
  for (const MemberId peer : lost) {
    lose(peer, LossCause::kSilent, now);
  }
  if (!lost.empty()) {
    // This member itself may be cut off, so it asks all voters.
    for (const MemberId voter : roster_.voters()) {
      ask_for_heartbeat(voter, Doubt::kAsked, now);
    }
  }
}

// True if any other voter is in reach. A standby without one has nothing to wait for, even if
// others have finished.
bool Member::has_company() const {
  return std::ranges::any_of(voter_peers_, [](const Peer* peer) {
    return peer != nullptr && peer->reach != Reach::kLost;
  });
}

void Member::check_limits(base::Instant now) {
  for (std::size_t i = 0; i < own_requests_.size();) {
    if (now - own_requests_[i].since > config_.park_limit + config_.quorum_limit) {
      events_.push_back(Answered{.text = "nobody answered: ask again", .ok = false});
      own_requests_.erase(own_requests_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  const bool is_alone =
      standing_ == Standing::kNewcomer
          ? std::ranges::none_of(peers_,
                                 [this](const auto& peer) {
                                   return peer.second.reach == Reach::kConnected &&
                                          roster_.has(peer.first);
                                 })
          : !may_decide() || (standing_ == Standing::kStandby && !has_company());
  if (!is_alone) {
    alone_since_.reset();
    return;
  }
  if (!alone_since_) {
    alone_since_ = now;
  }
  if (now - *alone_since_ < config_.quorum_limit) {
    return;
  }
  if (standing_ == Standing::kNewcomer) {
    dismiss("no member of the job is in reach: it has ended, or the network is cut");
    return;
  }
  const std::size_t count = voters_in_reach();
  const bool has_quorum = 2 * count > roster_.size();
  std::string why = has_quorum ? std::string("no rank is in reach: all that had the state are gone")
                               : fmt::format("{} of {} members are in reach, {} are needed", count,
                                             roster_.size(), roster_.quorum_size());
  const std::string cause = reason();
  dismiss(cause.empty() ? why : why + ": " + cause);
}

// Some members follow a decision that had time to arrive here but did not. Either this member is
// behind and now learns of it, or the job is split and both parts learn of that.
void Member::ask_members_ahead(base::Instant now) {
  if (!is_voter()) {
    return;
  }
  for (const MemberId member : forks_.ahead_since(now - config_.answer_limit)) {
    ask_for_missed_decisions(member, now);
  }
}

void Member::check_stragglers(base::Instant now) {
  const std::vector<MemberId> drivers = this->drivers(1);
  if (!is_voter() || drivers.empty()) {
    return;
  }
  const std::optional<std::uint32_t> rank = view_.rank_of(self_);
  if (drivers.front() != self_) {
    send(drivers.front(), Alive{.epoch = view_.epoch,
                                .step = greatest_step_,
                                .work = work_.typical().value_or(base::Duration())});
    return;
  }
  if (rank && work_.typical()) {
    works_[*rank] = *work_.typical();
  }
  for (const Straggler& straggler :
       find_stragglers(works_, roster_.rank_count(), config_.straggler_factor)) {
    if (stragglers_.contains(straggler.rank)) {
      continue;
    }
    const StragglerNotice word{
        view_.epoch, straggler.rank,
        static_cast<std::uint32_t>(std::min(straggler.times_median * 1000, 4e9))};
    for (const auto& [id, peer] : peers_) {
      send(id, word);
    }
    take(self_, word, now);
    if (config_.replace_stragglers && spares() > 0) {
      add_request(self_, 0,
                  ChangeRequest{.kind = RequestKind::kMove,
                                .ranks = {straggler.rank},
                                .why = fmt::format("its steps take {:.1f} times as long as others'",
                                                   straggler.times_median)},
                  now);
    }
  }
}

}  // namespace spillway::membership
