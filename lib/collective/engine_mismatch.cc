// SPDX-License-Identifier: Apache-2.0
//
// Handles ranks that call different operations: everything ends at once and the other ranks are
// told. The callers hear of it only when both calls are known, so that the error names both.
//
//   found out    own call whole, the other's as far as its signature tells: LEAVE to all
//   told of it   the rank whose call is missing fills it in: its LEAVE to all is whole
//   settled      both are whole, or the missing rank left, died or is silent: callers are told
#include <algorithm>
#include <utility>

#include "collective/engine.h"
#include "collective/mismatch.h"

namespace spillway::collective {

// This rank's call with that number; null if it has ended or was not called yet.
const Operation* Engine::called_here(const wire::Mismatch& mismatch) const {
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

void Engine::dispute(wire::Mismatch mismatch, std::uint16_t culprit, transport::Endpoint& endpoint,
                     base::Instant now) {
  if (failure_ && !dispute_) {
    return;
  }
  for (wire::CallText& call : mismatch.calls) {
    const bool is_missing = !call.is_whole && call.rank == config_.group.rank;
    if (const Operation* ours = is_missing ? called_here(mismatch) : nullptr) {
      call = call_text(call.rank, *ours);
    }
  }
  if (!dispute_) {
    dispute_ = Dispute{mismatch, culprit, now + endpoint.config().exchange.peer_timeout,
                       is_whole(mismatch)};
    end_all({base::StatusCode::kMismatch, mismatch_sentence(mismatch, config_.group)}, culprit,
            wire::FailureCause::kMismatch, endpoint, now);
    is_watching_ = true;
    endpoint.watch_everybody(true, now);  // a lost LEAVE is sent again to ranks that ask
  } else {
    fill_in(dispute_->mismatch, mismatch);
    fill_in(mismatch, dispute_->mismatch);
    if (is_whole(mismatch) && !is_whole(dispute_->mismatch)) {
      dispute_->mismatch = mismatch;
      dispute_->culprit = culprit;
    }
  }
  settle_if_known(endpoint);
}

// The rank is dead, or has said all that it will.
void Engine::hear_last_of(std::uint16_t rank, transport::Endpoint& endpoint) {
  dispute_->spent.push_back(rank);
  settle_if_known(endpoint);
}

void Engine::settle_if_known(transport::Endpoint& endpoint) {
  const auto is_awaited = [this](const wire::CallText& call) {
    const auto& spent = dispute_->spent;
    return !call.is_whole && call.rank != config_.group.rank &&
           std::find(spent.begin(), spent.end(), call.rank) == spent.end();
  };
  const auto& calls = dispute_->mismatch.calls;
  if (std::none_of(calls.begin(), calls.end(), is_awaited)) {
    settle(endpoint);
  }
}

void Engine::settle(transport::Endpoint& endpoint) {
  const Dispute dispute = *std::exchange(dispute_, std::nullopt);
  failure_ = {base::StatusCode::kMismatch, mismatch_sentence(dispute.mismatch, config_.group)};
  if (!dispute.was_whole) {  // told ranks take no second LEAVE; this is for those that ask
    endpoint.leave(dispute.culprit, wire::FailureCause::kMismatch, &dispute.mismatch);
  }
  for (const Untold& untold : std::exchange(untold_, {})) {
    listener_.on_complete(untold.token, *failure_, untold.report);
  }
}

void Engine::tell_failed(std::uint64_t token, const OperationReport& report) {
  if (dispute_) {
    untold_.push_back({token, report});
    return;
  }
  listener_.on_complete(token, *failure_, report);
}

}  // namespace spillway::collective
