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
constexpr std::size_t kToldOfEveryLoss = 2;

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
  hail(peer);
  if (roster_.has(peer) || former_.has(peer)) {
    tell_what_is_followed({peer});
  }
  if (has_finished_) {
    send(peer, Farewell{.epoch = view_.epoch, .is_whole = true});
  }
  repeat(peer, now);
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
    tell_of_loss(peer, cause);
    if (driver_ != self_) {
      park_here();  // again, because the number of voters in reach changed
    }
  }
}

// The watchers of the lost peer and a driver tell all members; others tell only the likely drivers.
void Member::tell_of_loss(MemberId peer, LossCause cause) {
  if (!told_of_.insert(peer).second) {
    return;
  }
  const std::optional<std::uint32_t> index = roster_.index_of(peer);
  bool tells_all = drive_.phase != Phase::kIdle;
  if (index) {
    const std::vector<MemberId> watchers = roster_.watchers_of(*index);
    tells_all = tells_all || std::ranges::find(watchers, self_) != watchers.end();
  }
  for (const MemberId other : drivers(tells_all ? kMaxMembers : kToldOfEveryLoss)) {
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
    tell_of_loss(target, cause);
    return;
  }
  if (cause == LossCause::kData) {
    return;
  }
  unfit_.insert(target);
  ask_for_sign(target, Doubt::kAccused, now);
}

void Member::ask_for_sign(MemberId from, Doubt doubt, base::Instant now) {
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

}  // namespace spillway::membership
