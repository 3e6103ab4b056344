// SPDX-License-Identifier: Apache-2.0
//
// The engine's part in sends and receives: how they are numbered, and how a receive finds its
// message (matching.h).
#include <algorithm>

#include "collective/engine.h"

namespace spillway::collective {
namespace {

// Keys without a number: receives that wait for their message, and sends and receives of nothing.
constexpr std::uint64_t kUnnumberedKey = std::uint64_t{1} << 61;

}  // namespace

bool Engine::is_numbered_receive(Key key) {
  return is_point_to_point_key(key) && (key >> 62 & 1) == 0 && (key & kUnnumberedKey) == 0;
}

bool Engine::is_numbered_send(Key key) {
  return is_point_to_point_key(key) && (key >> 62 & 1) != 0;
}

void Engine::start_point_to_point(const Waiting& waiting, transport::Endpoint& endpoint,
                                  base::Instant now) {
  const Operation& operation = waiting.operation;
  if (operation.count == 0) {
    start(waiting, next_unnumbered_key(), endpoint, now);
  } else if (operation.kind == Kind::kSend) {
    const std::uint64_t number = sends_to_[operation.root].next++;
    send_in_turn(waiting, point_to_point_key(operation.root, /*sends=*/true, number), endpoint,
                 now);
  } else {
    post(waiting, endpoint, now);
  }
}

Engine::Key Engine::next_unnumbered_key() {
  return point_to_point_key(0, /*sends=*/false, 0) | kUnnumberedKey | unnumbered_++;
}

void Engine::post(const Waiting& waiting, transport::Endpoint& endpoint, base::Instant now) {
  const Key key = next_unnumbered_key();
  const auto has_left = [this](std::uint16_t rank) {
    return std::any_of(closed_.begin(), closed_.end(),
                       [rank](const Closed& closed) { return closed.rank == rank; });
  };
  begin(waiting, key,
        std::make_unique<PostedReceive>(waiting.operation, key, run_config_, has_left), endpoint,
        now);
  if (running_.contains(key)) {
    matching_.post(key, waiting.operation.root, waiting.operation.tag);
    start_matched(endpoint, now);
  }
}

void Engine::on_announced(const wire::MessageId& message, transport::Endpoint& endpoint,
                          base::Instant now) {
  if (message.source < config_.group.workers()) {
    matching_.announce(message);
    start_matched(endpoint, now);
  }
}

// If the two ends do not agree on what is sent, that is found out as for any operation.
void Engine::start_matched(transport::Endpoint& endpoint, base::Instant now) {
  while (received_messages_ < config_.limits.pair_messages) {
    const std::optional<ReceiveMatching::Match> match = matching_.next();
    if (!match) {
      return;
    }
    const auto posted = running_.find(match->order);
    if (posted == running_.end()) {
      continue;  // everything has failed
    }
    OperationRun& run = *posted->second.run;
    Waiting waiting{run.operation(), posted->second.token, match->message.operation,
                    run.report().queued};
    waiting.operation.root = match->message.source;
    count_out(match->order, run);
    running_.erase(posted);
    start(waiting, key_of(match->message, match->message.source, /*sends=*/false), endpoint, now);
    on_unexpected({match->message, /*contradicts=*/false}, endpoint, now);
  }
}

}  // namespace spillway::collective
