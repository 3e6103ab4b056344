// SPDX-License-Identifier: Apache-2.0
//
// Decides which operations may be called, and when they begin, so that neither the size of one nor
// the number of all exhausts the endpoint's tables.
//
// An operation has a bounded number of messages under way at a time (plan.h, tolerant_run.h). The
// group's next one begins only while all running ones have less than limits.messages. No cycle of
// waiting can form. Take the first operation that has not ended everywhere. All before it have
// ended at every rank, so it has begun at every rank: operations begin in order, and one always
// may, whatever its size. From there on it needs only its own messages, for which every table has
// room. Urgent operations make it slower but never stop it. Its notes to late ranks in the
// background (those of an agreement included) are part of its messages.
//
// A large all-reduce may also wait for an earlier survey's notes (ways.h). Ranks send them
// as they begin that survey, an operation before it, so the notes do not depend on it.
//
// Sends have limits of their own, and so have receives. A receive has found its message when it
// begins, so it ends by itself. A send that waits for room waits for what other ranks have still to
// receive, and one message to each of them may always go. It never waits for operations of the
// group, nor do these for it.
//
// Calls to parameter servers have a limit, too. A server takes calls whether or not it has begun
// their operations, so room comes back by itself. Only a worker that is CallInbox::kMaxAhead
// operations ahead of the slowest waits for that one, which does not wait for it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collective/engine.h"

namespace spillway::collective {
namespace {

// True if this host's processors code it.
bool is_encoded_here(const Operation& operation) {
  return operation.tolerance && !operation.device;
}

}  // namespace

base::Status Engine::admit(const Operation& operation) const {
  if (config_.group.is_server()) {
    return base::invalid_argument(
        "a parameter server calls no operations: it does what the workers call");
  }
  return runs_.admit(operation);
}

// ------------------------------------------------------------------ operations of the group

// One operation may always run, however large, once there is room for its call and the notes of an
// earlier survey have come.
bool Engine::may_begin_next() const {
  const std::size_t servers = config_.group.servers;
  const bool may_call = !outbox_ || outbox_->size() == 0 ||
                        (outbox_->size() + 1) * servers <= config_.limits.call_messages;
  const bool has_notes = !is_surveyed(waiting_.front().operation) || !ways_->is_waiting();
  if (!may_call || !has_notes || group_running_ == 0) {
    return may_call && has_notes;
  }
  const std::uint64_t oldest = running_.begin()->first;  // point-to-point keys come behind
  return group_running_ < config_.limits.running && messages_ < config_.limits.messages &&
         waiting_.front().sequence - oldest < config_.limits.ahead;
}

void Engine::start_waiting(transport::Endpoint& endpoint, base::Instant now) {
  while (!waiting_.empty() && !failure_ && may_begin_next()) {
    const Waiting waiting = waiting_.front();
    waiting_.pop_front();
    start(waiting, waiting.sequence, endpoint, now);
  }
}

std::size_t& Engine::messages_of(Key key) {
  if (is_point_to_point_key(key)) {
    return is_numbered_send(key) ? sent_messages_ : received_messages_;
  }
  return messages_;
}

void Engine::count_in(Key key, const OperationRun& run) {
  group_running_ += is_point_to_point_key(key) ? 0 : 1;
  coding_ += is_encoded_here(run.operation()) ? 1 : 0;
  messages_of(key) += run.message_count();
}

void Engine::count_out(Key key, const OperationRun& run) {
  group_running_ -= is_point_to_point_key(key) ? 0 : 1;
  coding_ -= is_encoded_here(run.operation()) ? 1 : 0;
  messages_of(key) -= run.message_count();
}

// ------------------------------------------------------------------ sends and receives

// One send to every peer may always run: the peer may wait for it before it receives anything else.
void Engine::send_in_turn(const Waiting& waiting, Key key, transport::Endpoint& endpoint,
                          base::Instant now) {
  SendsTo& sends = sends_to_[waiting.operation.root];
  if (sends.held.empty() && (sends.running == 0 || sent_messages_ < config_.limits.pair_messages)) {
    ++sends.running;
    start(waiting, key, endpoint, now);
    return;
  }
  sends.held.push_back({waiting, key});
  ++held_sends_;
}

// Point-to-point operations have ended, a send to `peer` if one is named.
void Engine::use_room_for_pairs(std::optional<std::uint16_t> peer, transport::Endpoint& endpoint,
                                base::Instant now) {
  if (peer) {
    --sends_to_[*peer].running;
  }
  for (SendsTo& sends : sends_to_) {
    while (!sends.held.empty() && !failure_ &&
           (sends.running == 0 || sent_messages_ < config_.limits.pair_messages)) {
      const HeldSend held = std::move(sends.held.front());
      sends.held.pop_front();
      --held_sends_;
      ++sends.running;
      start(held.waiting, held.key, endpoint, now);
    }
    if (held_sends_ == 0) {
      break;
    }
  }
  start_matched(endpoint, now);
}

}  // namespace spillway::collective
