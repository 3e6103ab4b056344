// SPDX-License-Identifier: Apache-2.0
//
// The engine's part in groups with parameter servers: a worker's calls, and what a server does with
// them.
#include <fmt/format.h>

#include "collective/engine.h"

namespace spillway::collective {

base::Status Engine::serve(transport::Endpoint& endpoint, base::Instant now) {
  begin_numbering(endpoint);
  RunContext context = this->context(endpoint, now);
  return intake_->start(context);
}

// Operations that do not go through servers are called, too: so the servers know which numbers to
// expect next, and find out when workers do not agree.
base::Status Engine::call_servers(const Waiting& waiting, RunContext& context) {
  if (!outbox_ || is_point_to_point(waiting.operation.kind)) {
    return {};
  }
  return outbox_->send(waiting.operation, waiting.sequence, context);
}

// Between a worker and a server only calls are point to point.
bool Engine::is_call_event(const transport::Event& event) const {
  if (const auto* received = std::get_if<transport::ReceiveReport>(&event)) {
    return intake_ && received->id.phase == wire::Phase::kPointToPoint;
  }
  const auto* sent = std::get_if<transport::SendReport>(&event);
  return outbox_ && sent->id.phase == wire::Phase::kPointToPoint &&
         sent->to >= config_.group.workers();
}

void Engine::on_call_event(const transport::Event& event, transport::Endpoint& endpoint,
                           base::Instant now) {
  if (const auto* sent = std::get_if<transport::SendReport>(&event)) {
    outbox_->on_sent(*sent);
    start_waiting(endpoint, now);
    return;
  }
  const auto& received = std::get<transport::ReceiveReport>(event);
  if (failure_ || received.outcome == transport::Outcome::kPeerDead) {
    return;
  }
  RunContext context = this->context(endpoint, now);
  if (const std::optional<CallFault> fault = intake_->on_received(received, context)) {
    if (fault->mismatch) {
      dispute(*fault->mismatch, fault->culprit, endpoint, now);
    } else {
      fail(fault->status, fault->culprit, fault->cause, endpoint, now);
    }
    return;
  }
  while (const std::optional<OpenedCall> opened = intake_->next()) {
    open(*opened, endpoint, now);
  }
}

// A server checks the operation itself: it does not rely on the check of the worker that calls it.
void Engine::open(const OpenedCall& opened, transport::Endpoint& endpoint, base::Instant now) {
  const Operation& operation = opened.operation;
  base::Status status = validate_here(operation);
  if (status.ok() && waiting_.size() == config_.limits.waiting) {
    status = {base::StatusCode::kLimitExceeded, "too many operations wait already"};
  }
  if (!status.ok()) {
    fail({status.code(), fmt::format("operation {} of rank {} ({}): {}", opened.sequence,
                                     opened.caller, describe(operation), status.message())},
         opened.caller, wire::FailureCause::kMismatch, endpoint, now);
    return;
  }
  if (!uses_servers(operation, config_.group)) {
    next_sequence_ = opened.sequence + 1;
    tell_floor(Key{opened.sequence}, endpoint);
    return;
  }
  enqueue({operation, /*token=*/opened.sequence, opened.sequence, now}, endpoint, now);
}

}  // namespace spillway::collective
