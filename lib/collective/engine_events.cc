// SPDX-License-Identifier: Apache-2.0
//
// Events that come to the engine while operations run, from the transport and from compute threads.
// Also: one failure ends all operations.
#include <fmt/format.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "collective/engine.h"
#include "collective/mismatch.h"

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

void Engine::on_event(const transport::Event& event, transport::Endpoint& endpoint,
                      base::Instant now) {
  if (const auto* dead = std::get_if<transport::PeerDead>(&event)) {
    if (dispute_) {
      hear_last_of(dead->rank, endpoint);
      return;
    }
    fail({base::StatusCode::kPeerFailed,
          death_sentence(*dead, config_.group, endpoint.config().exchange.peer_timeout)},
         dead->rank, wire::FailureCause::kPeerDead, endpoint, now);
    return;
  }
  if (const auto* stall = std::get_if<transport::MessageStalled>(&event)) {
    fail({base::StatusCode::kTimedOut, stall_sentence(*stall, config_.group)}, stall->peer,
         wire::FailureCause::kTimeout, endpoint, now);
    return;
  }
  if (const auto* failed = std::get_if<transport::PeerFailed>(&event)) {
    on_peer_failed(*failed, endpoint, now);
    return;
  }
  if (const auto* unexpected = std::get_if<transport::UnexpectedMessage>(&event)) {
    on_unexpected(*unexpected, endpoint, now);
    return;
  }
  if (const auto* summed = std::get_if<transport::SumReport>(&event)) {
    on_summed(*summed, endpoint, now);
    return;
  }
  if (is_call_event(event)) {
    on_call_event(event, endpoint, now);
    return;
  }
  on_message_event(event, endpoint, now);
}

void Engine::on_peer_failed(const transport::PeerFailed& event, transport::Endpoint& endpoint,
                            base::Instant now) {
  if (event.mismatch && has_texts(*event.mismatch)) {
    dispute(*event.mismatch, event.culprit, endpoint, now);
  }
  if (dispute_) {
    hear_last_of(event.from, endpoint);
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

// A message of an operation has ended.
void Engine::on_message_event(const transport::Event& event, transport::Endpoint& endpoint,
                              base::Instant now) {
  RunContext context = this->context(endpoint, now);
  const auto* received = std::get_if<transport::ReceiveReport>(&event);
  const auto* sent = std::get_if<transport::SendReport>(&event);
  const Key key = received != nullptr ? key_of(received->id, received->id.source, false)
                                      : key_of(sent->id, sent->to, true);
  const auto found = running_.find(key);
  if (found == running_.end()) {
    return;  // of an operation that failed
  }
  const transport::Outcome outcome = received != nullptr ? received->outcome : sent->outcome;
  if (outcome == transport::Outcome::kPeerDead) {
    return;  // the event that names the peer follows
  }
  if (found->second.notes && CapacityNotes::is_one(received != nullptr ? received->id : sent->id)) {
    on_note_event(event, key, endpoint, now);
    return;
  }
  OperationRun& run = *found->second.run;
  found->second.last_message = now;
  after(key,
        received != nullptr ? run.on_received(*received, context) : run.on_sent(*sent, context),
        endpoint, now);
}

void Engine::on_summed(const transport::SumReport& report, transport::Endpoint& endpoint,
                       base::Instant now) {
  const auto found = running_.find(report.id.operation);
  if (found == running_.end()) {
    return;  // of an operation that failed
  }
  RunContext context = this->context(endpoint, now);
  found->second.last_message = now;
  after(report.id.operation, found->second.run->on_summed(report, context), endpoint, now);
}

// A rank that left was done with everything it knew of; anything that still waits for it does so in
// vain.
void Engine::on_closed(const transport::PeerFailed& event, transport::Endpoint& endpoint,
                       base::Instant now) {
  closed_.push_back({event.from, event.finished_before});
  if (intake_) {
    RunContext context = this->context(endpoint, now);
    intake_->leave(event.from, context);
  }
  tell_of(closed_.back(), endpoint, now);
}

// Operations that the rank has finished can end without it; others fail if they need it.
void Engine::tell_of(const Closed& closed, transport::Endpoint& endpoint, base::Instant now) {
  RunContext context = this->context(endpoint, now);
  for (const auto& [key, active] : running_) {
    if (!is_point_to_point_key(key) && key < closed.finished_before) {
      active.run->on_left(closed.rank, context);
    }
  }
  leave_surveys(closed, endpoint, now);
  fail_what_needs(closed.rank, endpoint, now);
}

void Engine::fail_what_needs(std::uint16_t peer, transport::Endpoint& endpoint, base::Instant now) {
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

void Engine::on_unexpected(const transport::UnexpectedMessage& event, transport::Endpoint& endpoint,
                           base::Instant now) {
  if (intake_) {
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
  dispute(mismatch, event.id.source, endpoint, now);
}

void Engine::on_computed(const ComputeJob& job, transport::Endpoint& endpoint, base::Instant now) {
  RunContext context = this->context(endpoint, now);
  if (const auto leaving = leaving_.find(job.operation); leaving != leaving_.end()) {
    OperationRun& run = *leaving->second.run;
    static_cast<void>(run.on_computed(job.tag, context));  // it was withdrawn: nothing follows
    if (run.is_idle()) {
      const Active active = std::move(leaving->second);
      leaving_.erase(leaving);
      if (!active.is_complete) {
        active.run->report().finished = now;
        tell_failed(active.token, active.run->report());
      }
    }
    return;
  }
  const auto found = running_.find(job.operation);
  SPILLWAY_CHECK(found != running_.end());
  count_job(found->second, job, now);
  after(job.operation, found->second.run->on_computed(job.tag, context), endpoint, now);
}

void Engine::fail(const base::Status& cause, std::uint16_t culprit, wire::FailureCause reason,
                  transport::Endpoint& endpoint, base::Instant now) {
  if (dispute_ && reason == wire::FailureCause::kAborted) {
    settle(endpoint);  // the caller waits no longer
  }
  if (!failure_) {
    end_all(cause, culprit, reason, endpoint, now);
  }
}

void Engine::end_all(const base::Status& cause, std::uint16_t culprit, wire::FailureCause reason,
                     transport::Endpoint& endpoint, base::Instant now) {
  failure_ = cause;
  endpoint.leave(culprit, reason, dispute_ ? &dispute_->mismatch : nullptr);
  RunContext context = this->context(endpoint, now);
  if (intake_) {
    intake_->withdraw(context);
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
    tell_failed(active.token, active.run->report());
  }
  for (const Waiting& waiting : std::exchange(waiting_, {})) {
    complete_failed(waiting, now);
  }
  held_sends_ = 0;
  for (SendsTo& sends : sends_to_) {
    for (const HeldSend& held : std::exchange(sends.held, {})) {
      complete_failed(held.waiting, now);
    }
  }
}

void Engine::complete_failed(const Waiting& waiting, base::Instant now) {
  OperationReport report;
  report.sequence = waiting.sequence;
  report.operation = waiting.operation;
  report.queued = waiting.queued;
  report.finished = now;
  report.peers.resize(config_.group.world);
  tell_failed(waiting.token, report);
}

}  // namespace spillway::collective
