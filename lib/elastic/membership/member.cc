// SPDX-License-Identifier: Apache-2.0
#include "elastic/membership/member.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace spillway::membership {
namespace {

std::uint64_t stream_of(std::uint64_t seed, MemberId self) {
  return base::derive_key(
      seed, {static_cast<std::uint32_t>(self), static_cast<std::uint32_t>(self >> 32), 0, 0});
}

Handle fitting(const Handle& handle) {
  return handle.size() <= kMaxHandleBytes ? handle : Handle();
}

}  // namespace

Member::Member(const MemberConfig& config, MemberId self, std::optional<View> view,
               Handle next_handle, base::Instant now)
    : config_(config),
      self_(self),
      random_(stream_of(config.seed, self)),
      handle_(fitting(next_handle)),
      next_beat_(now + config.heartbeat) {
  position_.is_warm = false;
  if (view) {
    settle(*view, now);
  }
}

// A view comes into force; all state of the previous one is dropped.
void Member::settle(const View& view, base::Instant now) {
  view_ = view;
  roster_ = Roster(view);
  standing_ = roster_.has_rank(self_) ? Standing::kRank
              : roster_.has(self_)    ? Standing::kStandby
                                      : Standing::kNewcomer;
  training_ = standing_ == Standing::kRank ? Training::kRunning : Training::kParked;
  has_finished_ = false;
  has_heard_done_ = false;
  stop_at_.reset();
  step_.reset();
  work_.clear();
  std::erase_if(peers_, [this](const auto& peer) {
    return !peer.second.is_open && !roster_.has(peer.first);
  });
  lost_count_ = 0;
  finished_count_ = 0;
  for (auto& [id, peer] : peers_) {
    lost_count_ += peer.reach == Reach::kLost ? 1 : 0;
    peer.since = now;
    peer.told.reset();
    peer.has_finished = false;
    peer.doubt = Doubt::kNone;
  }
  voter_peers_.clear();
  for (const MemberId voter : roster_.voters()) {
    applicants_.erase(voter);
    voter_peers_.push_back(
        voter == self_
            ? nullptr
            : &peers_.try_emplace(voter, Peer{.since = now, .heard = now}).first->second);
  }
  accusers_.clear();
  unfit_.clear();
  reported_losses_.clear();
  works_.clear();
  stragglers_.clear();
  promised_ = 0;
  accepted_ballot_ = 0;
  accepted_.reset();
  driver_ = 0;
  greatest_round_ = 0;
  drive_ = {};
  needed_since_.reset();
  alone_since_.reset();
  pending_requests_.clear();
}

void Member::dismiss(std::string why) {
  if (standing_ == Standing::kOver) {
    return;
  }
  standing_ = Standing::kOver;
  drive_ = {};
  std::erase_if(events_,
                [](const Event& event) { return std::holds_alternative<Interrupt>(event); });
  for (const OwnRequest& asked : own_requests_) {
    static_cast<void>(asked);
    events_.push_back(Answered{.text = why, .ok = false});
  }
  own_requests_.clear();
  events_.push_back(Dismissed{std::move(why)});
}

// ------------------------------------------------------------------ the application

void Member::on_step(std::uint64_t step, base::Duration work, base::Instant /*now*/) {
  if (standing_ != Standing::kRank || training_ == Training::kParked) {
    return;
  }
  if (step_) {
    work_.add(std::max(work, base::Duration()));
  }
  step_ = step;
  greatest_step_ = std::max(greatest_step_, step);
}

void Member::on_parked(std::uint32_t epoch, const Position& position, const Handle& next_handle,
                       base::Instant now) {
  if (standing_ == Standing::kOver || (is_voter() && epoch != view_.epoch)) {
    return;
  }
  handle_ = fitting(next_handle);
  position_ = position;
  std::erase_if(events_,
                [](const Event& event) { return std::holds_alternative<Interrupt>(event); });
  if (standing_ == Standing::kNewcomer) {
    for (const auto& [id, peer] : peers_) {
      send_hello(id);
    }
    return;
  }
  if (standing_ == Standing::kRank) {
    const bool is_own_accord = training_ == Training::kRunning;
    training_ = Training::kParked;
    if (is_own_accord) {
      accuse(self_, self_, LossCause::kData, now);
    }
  }
  report_parked();
  evaluate(now);
}

// Tells the driver that this member's training is stopped.
void Member::report_parked() {
  if (driver_ == 0 || training_ != Training::kParked) {
    return;
  }
  if (driver_ != self_) {
    send(driver_, Parked{.epoch = view_.epoch,
                         .ballot = promised_,
                         .position = position(),
                         .in_reach = static_cast<std::uint16_t>(voters_in_reach()),
                         .handle = handle_,
                         .accepted_ballot = accepted_ballot_,
                         .accepted = accepted_});
  } else if (drive_.phase == Phase::kGathering) {
    drive_.parked[self_] = {self_, position(), handle_};
  }
}

Position Member::position() const {
  Position position = position_;
  position.has_state = position.has_state && standing_ == Standing::kRank;
  return position;
}

void Member::stop_training(std::optional<std::uint64_t> at_step, const std::string& why) {
  if (training_ == Training::kParked ||
      (training_ == Training::kStopping && (at_step || !stop_at_))) {
    return;
  }
  training_ = Training::kStopping;
  stop_at_ = at_step;
  events_.push_back(Interrupt{.epoch = view_.epoch, .at_step = at_step, .why = why});
}

void Member::leave(bool is_whole, base::Instant now) {
  if (standing_ == Standing::kOver) {
    return;
  }
  const bool is_done = is_whole && standing_ == Standing::kRank;
  for (const auto& [id, peer] : peers_) {
    send(id, LeaveNotice{.epoch = view_.epoch, .is_whole = is_done});
  }
  if (!is_done) {
    standing_ = Standing::kOver;
    drive_ = {};
    return;
  }
  note_finished(has_finished_, now);
  evaluate(now);
}

// ------------------------------------------------------------------ requests

base::Status Member::ask(const ChangeRequest& request, base::Instant now) {
  if (!is_voter()) {
    return base::invalid_argument("only a member of the job can ask for a change of it");
  }
  if (own_requests_.size() >= kMaxAsked || request.ranks.size() > kMaxRequestRanks) {
    return {base::StatusCode::kLimitExceeded,
            fmt::format("at most {} requests of {} ranks may wait", kMaxAsked, kMaxRequestRanks)};
  }
  ChangeRequest checked = request;
  checked.why = base::printable_prefix(request.why, kMaxWhyBytes);
  if (checked.kind == RequestKind::kEnd || checked.kind == RequestKind::kGrow) {
    checked.ranks.clear();
  }
  const SizeRules size{.may_shrink = true, .may_grow = config_.size.may_grow};
  if (const std::string wrong = objection(checked, view_, kMaxMembers, size); !wrong.empty()) {
    return base::invalid_argument(wrong);
  }
  OwnRequest asked{.number = next_number_++, .kind = checked.kind, .since = now};
  if (checked.kind == RequestKind::kGrow) {
    asked.least_ranks = view_.ranks.size() + checked.places;
  }
  for (const std::uint32_t rank : checked.ranks) {
    asked.members.push_back(view_.ranks[rank]);
  }
  own_requests_.push_back(asked);
  const std::vector<MemberId> drivers = this->drivers(1);
  if (drivers.empty() || drivers.front() == self_) {
    add_request(self_, asked.number, checked, now);
  } else {
    send(drivers.front(), ForwardedRequest{view_.epoch, asked.number, checked});
  }
  return {};
}

// A decision answers all requests made here: each was done, or something came in between.
void Member::answer_own_requests(const View& before, const Decision& decision) {
  for (const OwnRequest& asked : std::exchange(own_requests_, {})) {
    const bool is_left = std::ranges::any_of(
        asked.members, [&](MemberId member) { return decision.view.rank_of(member).has_value(); });
    const bool is_done = asked.kind == RequestKind::kEnd
                             ? decision.outcome == Outcome::kEnds
                             : !is_left && decision.view.ranks.size() >= asked.least_ranks;
    events_.push_back(Answered{
        .text = is_done
                    ? fmt::format("done in epoch {}: {}", decision.view.epoch, decision.why)
                    : fmt::format("not done, something came in between in epoch {}: {}; ask again",
                                  before.epoch, decision.why),
        .ok = is_done});
  }
}

// ------------------------------------------------------------------ output

std::optional<Outgoing> Member::poll_transmit() {
  if (outbox_.empty()) {
    return std::nullopt;
  }
  Outgoing next = std::move(outbox_.front());
  outbox_.pop_front();
  return next;
}

std::optional<Event> Member::poll_event() {
  if (events_.empty()) {
    return std::nullopt;
  }
  Event next = std::move(events_.front());
  events_.pop_front();
  return next;
}

std::string Member::name_of(MemberId member) const {
  const std::optional<std::uint32_t> index = roster_.index_of(member);
  if (!index) {
    return "a newcomer";
  }
  return *index < roster_.rank_count() ? fmt::format("rank {}", *index)
                                       : fmt::format("standby {}", *index - roster_.rank_count());
}

std::string Member::waits_for(base::Instant now) const {
  const auto seconds = [now](base::Instant since) {
    return static_cast<double>((now - since).count()) * 1e-9;
  };
  if (alone_since_) {
    return fmt::format("a quorum to be in reach, for {:.1f} s", seconds(*alone_since_));
  }
  if (drive_.phase == Phase::kGathering) {
    const std::vector<MemberId> others = awaited(now);
    const MemberId first = others.empty() ? self_ : others.front();
    return fmt::format("{} to end its step{}, for {:.1f} s", name_of(first),
                       others.size() > 1 ? fmt::format(" (and {} more)", others.size() - 1) : "",
                       seconds(drive_.since));
  }
  if (drive_.phase == Phase::kAccepting) {
    return fmt::format("a quorum to accept, {} have, for {:.1f} s", drive_.accepted.size(),
                       seconds(drive_.since));
  }
  if (training_ == Training::kStopping) {
    return "training here to stop";
  }
  if (driver_ != 0) {
    return fmt::format("{}, which drives the change, for {:.1f} s", name_of(driver_),
                       seconds(needed_since_.value_or(now)));
  }
  return needed_since_
             ? fmt::format("somebody to drive a change, for {:.1f} s", seconds(*needed_since_))
             : "";
}

}  // namespace spillway::membership
