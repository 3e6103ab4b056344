// SPDX-License-Identifier: Apache-2.0
//
// How an engine fails: one failure ends all operations of the communicator. This file words the
// errors, ends everything, and resolves a mismatch between two ranks' calls.
//
// A mismatch ends everything at once and the other ranks are told, but the callers hear of it only
// when both calls are known, so that the error names both:
//
//   found out    own call complete, the other as far as its signature tells: LEAVE to all ranks
//   told of it   the rank whose call is missing fills it in: its LEAVE to all ranks is complete
//   resolved     both are complete, or the missing rank left, died or is silent: callers are told
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "collective/calls.h"
#include "collective/engine.h"

namespace spillway::collective {
namespace {

// The status code here of another rank's failure.
base::StatusCode code_of(wire::FailureCause cause) {
  switch (cause) {
    case wire::FailureCause::kMismatch:
      return base::StatusCode::kMismatch;
    case wire::FailureCause::kTimeout:
      return base::StatusCode::kTimedOut;
    case wire::FailureCause::kClosed:
    case wire::FailureCause::kPeerDead:
    case wire::FailureCause::kAborted:
    case wire::FailureCause::kInternal:
      break;
  }
  return base::StatusCode::kPeerFailed;
}

// The rank that tells may have been told itself.
std::string failure_sentence(const transport::PeerFailed& event, const Group& group) {
  const std::string from = rank_name(group, event.from);
  const std::string culprit = rank_name(group, event.culprit);
  switch (event.cause) {
    case wire::FailureCause::kPeerDead:
      return fmt::format("{} is dead, says {}", culprit, from);
    case wire::FailureCause::kMismatch:
      return fmt::format(
          "{} calls what cannot be run, says {}; all ranks must call the same operations in the "
          "same order",
          culprit, from);
    case wire::FailureCause::kAborted:
      return fmt::format("{} aborted", culprit);
    case wire::FailureCause::kTimeout:
      return fmt::format("{} was waited for too long, says {}", culprit, from);
    case wire::FailureCause::kClosed:
      return fmt::format("{} closed its communicator too early", culprit);
    case wire::FailureCause::kInternal:
      break;
  }
  return fmt::format("{} failed; its own log says why", culprit);
}

std::string death_sentence(const transport::PeerDead& dead, const Group& group,
                           base::Duration timeout) {
  const std::string who = rank_name(group, dead.rank);
  if (dead.cause == transport::DeathCause::kRefused) {
    return fmt::format("{} is dead: its process is gone (its port refuses)", who);
  }
  return fmt::format("{} is dead: nothing was heard from it for {} ms", who,
                     timeout.count() / 1'000'000);
}

// Names the peer, the path, and what was seen.
std::string stall_observed(const transport::MessageStalled& stall, const std::string& who) {
  if (stall.side == transport::StallSide::kReceiving) {
    return fmt::format(
        "{} is heard, but of its last {} datagrams of up to {} bytes none has arrived for {} s",
        who, stall.packets, stall.datagram_bytes,
        transport::kReceiverStallAfter.count() / 1'000'000'000);
  }
  return fmt::format(
      "{} is heard, but of {} datagrams of up to {} bytes that were sent to it over {} paths in "
      "the last {} s (path {} lost most) none has arrived",
      who, stall.packets, stall.datagram_bytes, stall.paths,
      transport::kStallAfter.count() / 1'000'000'000, stall.path);
}

std::string stall_sentence(const transport::MessageStalled& stall, const Group& group) {
  const std::string who = rank_name(group, stall.peer);
  switch (stall.reason) {
    case transport::StallReason::kBlockedHere:
      return fmt::format("this host refuses to send datagrams of {} bytes to {}: {}; {}",
                         stall.datagram_bytes, who, std::generic_category().message(stall.error),
                         stall.error == EMSGSIZE
                             ? "raise the MTU of its interface again, or set SPILLWAY_MTU to it "
                               "at every rank"
                             : "see its routes and its firewall");
    case transport::StallReason::kTooBig:
      return fmt::format(
          "{}, while short ones come through: raise the MTU of the switches and interfaces between "
          "them, or set SPILLWAY_MTU to less at every rank; `spillway doctor --peer` finds out "
          "what passes",
          stall_observed(stall, who));
    case transport::StallReason::kLost:
      break;
  }
  return fmt::format(
      "{}: see that nothing between them filters UDP, and that `spillway doctor --peer` finds the "
      "path fit",
      stall_observed(stall, who));
}

}  // namespace

// ------------------------------------------------------------------ failures of peers

void Engine::on_peer_dead(const transport::PeerDead& dead, transport::Endpoint& endpoint,
                          base::Instant now) {
  if (pending_mismatch_) {
    stop_waiting_for(dead.rank, endpoint);
    return;
  }
  fail({base::StatusCode::kPeerFailed,
        death_sentence(dead, config_.group, endpoint.config().exchange.peer_timeout)},
       dead.rank, wire::FailureCause::kPeerDead, endpoint, now);
}

void Engine::on_stalled(const transport::MessageStalled& stall, transport::Endpoint& endpoint,
                        base::Instant now) {
  fail({base::StatusCode::kTimedOut, stall_sentence(stall, config_.group)}, stall.peer,
       wire::FailureCause::kTimeout, endpoint, now);
}

void Engine::on_peer_failed(const transport::PeerFailed& event, transport::Endpoint& endpoint,
                            base::Instant now) {
  if (event.mismatch && has_texts(*event.mismatch)) {
    resolve_or_wait(*event.mismatch, event.culprit, endpoint, now);
  }
  if (pending_mismatch_) {
    stop_waiting_for(event.from, endpoint);
    return;
  }
  // Otherwise it failed, because another rank closed too early.
  const bool is_its_own = event.culprit == event.from;
  if (event.cause == wire::FailureCause::kClosed && is_its_own) {
    on_closed(event, endpoint, now);
    return;
  }
  fail({code_of(event.cause), failure_sentence(event, config_.group)}, event.culprit, event.cause,
       endpoint, now);
}

// A rank that left was done with everything it knew of; anything that still waits for it does so in
// vain.
void Engine::on_closed(const transport::PeerFailed& event, transport::Endpoint& endpoint,
                       base::Instant now) {
  closed_.push_back({event.from, event.finished_before});
  if (inbox_) {
    RunContext context = this->context(endpoint, now);
    inbox_->leave(event.from, context);
  }
  notify_runs_of(closed_.back(), endpoint, now);
}

// Operations that the rank has finished can end without it; others fail if they need it.
void Engine::notify_runs_of(const Closed& closed, transport::Endpoint& endpoint,
                            base::Instant now) {
  RunContext context = this->context(endpoint, now);
  for (const auto& [key, active] : running_) {
    if (!is_point_to_point_key(key) && key < closed.finished_before) {
      active.run->on_left(closed.rank, context);
    }
  }
  leave_surveys(closed, endpoint, now);
  fail_runs_that_need(closed.rank, endpoint, now);
}

void Engine::fail_runs_that_need(std::uint16_t peer, transport::Endpoint& endpoint,
                                 base::Instant now) {
  for (const auto& [key, active] : running_) {
    if (!active.is_complete && active.run->needs(peer)) {
      fail({base::StatusCode::kPeerFailed,
            fmt::format("{} closed its communicator while operation {} ({}) waits for it",
                        rank_name(config_.group, peer), active.run->report().sequence,
                        describe(active.run->operation()))},
           peer, wire::FailureCause::kClosed, endpoint, now);
      return;
    }
  }
}

// ------------------------------------------------------------------ the end of all operations

void Engine::fail(const base::Status& cause, std::uint16_t culprit, wire::FailureCause reason,
                  transport::Endpoint& endpoint, base::Instant now) {
  if (pending_mismatch_ && reason == wire::FailureCause::kAborted) {
    resolve_mismatch(endpoint);  // the caller waits no longer
  }
  if (!failure_) {
    end_all(cause, culprit, reason, endpoint, now);
  }
}

void Engine::end_all(const base::Status& cause, std::uint16_t culprit, wire::FailureCause reason,
                     transport::Endpoint& endpoint, base::Instant now) {
  failure_ = cause;
  endpoint.leave(culprit, reason, pending_mismatch_ ? &pending_mismatch_->mismatch : nullptr);
  RunContext context = this->context(endpoint, now);
  if (inbox_) {
    inbox_->withdraw(context);
  }
  if (outbox_) {
    outbox_->withdraw(context);
  }
  std::map<Key, Active> running = std::exchange(running_, {});
  group_running_ = 0;
  coding_ = 0;
  messages_ = 0;
  sent_messages_ = 0;
  received_messages_ = 0;
  for (auto& [key, active] : running) {
    active.run->withdraw(context);
    if (active.notes) {
      active.notes->withdraw(context);
    }
    if (active.is_complete) {
      if (!active.run->is_idle()) {
        leaving_.emplace(key, std::move(active));
      }
      continue;
    }
    if (!active.run->is_idle()) {
      leaving_.emplace(key, std::move(active));  // a job still uses the caller's memory
      continue;
    }
    active.run->report().finished = now;
    report_failure(active.token, active.run->report());
  }
  for (const Waiting& waiting : std::exchange(waiting_, {})) {
    fail_waiting(waiting, now);
  }
  held_sends_ = 0;
  for (SendsTo& sends : sends_to_) {
    for (const HeldSend& held : std::exchange(sends.held, {})) {
      fail_waiting(held.waiting, now);
    }
  }
}

void Engine::fail_waiting(const Waiting& waiting, base::Instant now) {
  OperationReport report;
  report.sequence = waiting.sequence;
  report.operation = waiting.operation;
  report.queued = waiting.queued;
  report.finished = now;
  report.peers.resize(config_.group.world);
  report_failure(waiting.token, report);
}

void Engine::report_failure(std::uint64_t token, const OperationReport& report) {
  if (pending_mismatch_) {
    unreported_.push_back({token, report});
    return;
  }
  listener_.on_complete(token, *failure_, report);
}

// ------------------------------------------------------------------ mismatches

void Engine::on_unexpected(const transport::UnexpectedMessage& event, transport::Endpoint& endpoint,
                           base::Instant now) {
  if (inbox_) {
    return;  // if workers disagree, their calls show it, in full
  }
  const auto found = running_.find(key_of(event.id, event.id.source, false));
  if (found == running_.end()) {
    if (event.id.phase == wire::Phase::kPointToPoint && !failure_) {
      on_announced(event.id, endpoint, now);
    }
    return;  // not begun here yet
  }
  const Active& active = found->second;
  if (active.run->signature() == event.id.signature && !event.contradicts) {
    return;  // expected, but not yet its turn
  }
  const wire::CallText ours = call_text(config_.group.rank, active.run->operation());
  const std::string theirs = describe_signature(event.id.signature);
  const bool looks_alike = theirs == describe_signature(active.run->signature());
  wire::Mismatch mismatch{
      .operation = event.id.operation,
      .is_point_to_point = event.id.phase == wire::Phase::kPointToPoint,
      .calls = {ours, call_text(event.id.source,
                                looks_alike ? "the same with another size, root, algorithm, code "
                                              "or tolerance"
                                            : theirs,
                                /*is_whole=*/false)}};
  if (event.id.signature == active.run->signature()) {
    mismatch.calls[1] = ours;  // the same call, in packets of another size
    mismatch.calls[1].rank = event.id.source;
  }
  resolve_or_wait(mismatch, event.id.source, endpoint, now);
}

// This rank's call with that number; null if it has ended or was not called yet.
const Operation* Engine::own_call(const wire::Mismatch& mismatch) const {
  if (!mismatch.is_point_to_point) {
    for (const Waiting& waiting : waiting_) {
      if (waiting.sequence == mismatch.operation) {
        return &waiting.operation;
      }
    }
    const auto found = running_.find(mismatch.operation);
    return found != running_.end() ? &found->second.run->operation() : nullptr;
  }
  const bool is_first = mismatch.calls[0].rank == config_.group.rank;
  const std::uint16_t peer = mismatch.calls[is_first ? 1 : 0].rank;
  for (const bool sends : {true, false}) {
    const auto found = running_.find(point_to_point_key(peer, sends, mismatch.operation));
    if (found != running_.end()) {
      return &found->second.run->operation();
    }
  }
  return nullptr;
}

void Engine::resolve_or_wait(wire::Mismatch mismatch, std::uint16_t culprit,
                             transport::Endpoint& endpoint, base::Instant now) {
  if (failure_ && !pending_mismatch_) {
    return;
  }
  for (wire::CallText& call : mismatch.calls) {
    const bool is_missing = !call.is_whole && call.rank == config_.group.rank;
    if (const Operation* ours = is_missing ? own_call(mismatch) : nullptr) {
      call = call_text(call.rank, *ours);
    }
  }
  if (!pending_mismatch_) {
    pending_mismatch_ = PendingMismatch{
        mismatch, culprit, now + endpoint.config().exchange.peer_timeout, is_whole(mismatch)};
    end_all({base::StatusCode::kMismatch, mismatch_sentence(mismatch, config_.group)}, culprit,
            wire::FailureCause::kMismatch, endpoint, now);
    is_watching_ = true;
    endpoint.watch_all_peers(true, now);  // a lost LEAVE is sent again to ranks that ask
  } else {
    fill_in(pending_mismatch_->mismatch, mismatch);
    fill_in(mismatch, pending_mismatch_->mismatch);
    if (is_whole(mismatch) && !is_whole(pending_mismatch_->mismatch)) {
      pending_mismatch_->mismatch = mismatch;
      pending_mismatch_->culprit = culprit;
    }
  }
  resolve_if_complete(endpoint);
}

// The rank is dead, or has said all that it will.
void Engine::stop_waiting_for(std::uint16_t rank, transport::Endpoint& endpoint) {
  pending_mismatch_->silent.push_back(rank);
  resolve_if_complete(endpoint);
}

void Engine::resolve_if_complete(transport::Endpoint& endpoint) {
  const auto is_awaited = [this](const wire::CallText& call) {
    const auto& silent = pending_mismatch_->silent;
    return !call.is_whole && call.rank != config_.group.rank &&
           std::find(silent.begin(), silent.end(), call.rank) == silent.end();
  };
  const auto& calls = pending_mismatch_->mismatch.calls;
  if (std::none_of(calls.begin(), calls.end(), is_awaited)) {
    resolve_mismatch(endpoint);
  }
}

void Engine::resolve_mismatch(transport::Endpoint& endpoint) {
  const PendingMismatch resolve_or_wait = *std::exchange(pending_mismatch_, std::nullopt);
  failure_ = {base::StatusCode::kMismatch,
              mismatch_sentence(resolve_or_wait.mismatch, config_.group)};
  if (!resolve_or_wait.was_whole) {  // told ranks take no second LEAVE; this is for those that ask
    endpoint.leave(resolve_or_wait.culprit, wire::FailureCause::kMismatch,
                   &resolve_or_wait.mismatch);
  }
  for (const Unreported& unreported : std::exchange(unreported_, {})) {
    listener_.on_complete(unreported.token, *failure_, unreported.report);
  }
}

}  // namespace spillway::collective
