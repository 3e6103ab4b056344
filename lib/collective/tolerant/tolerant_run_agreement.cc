// SPDX-License-Identifier: Apache-2.0
//
// The agreement of a tolerant all-reduce with deadlines on which shards count: when this rank says
// what it has, how long it waits for others to do so, and what follows from the decision.
#include <algorithm>

#include "collective/tolerant/tolerant_run.h"

namespace spillway::collective {
namespace {

// Time that a note may be in flight, on top of the time that it waits for.
constexpr base::Duration kNoteTime = base::microseconds(300);

}  // namespace

void TolerantRun::look_whether_ready(base::Instant now) {
  if (!agrees() || notes_->agreement().is_ready() || collecting_.sums < collecting_.pieces) {
    return;
  }
  last_held_ = now;
  const bool has_all = std::all_of(pieces_.begin(), pieces_.end(), [this](const PieceState& piece) {
    return piece.is_held() || (piece.sum && lags(piece.place.owner) && !piece.sum->has_begun());
  });
  if (has_all) {
    become_ready(now);
  }
}

void TolerantRun::become_ready(base::Instant now) {
  ShardSet shards = no_shards(config_.group.world);
  std::vector<bool> lacks(config_.group.world);
  for (const PieceState& piece : pieces_) {
    lacks[piece.place.shard] = lacks[piece.place.shard] || !piece.is_held();
  }
  for (std::uint16_t shard = 0; shard < config_.group.world; ++shard) {
    if (!lacks[shard]) {
      add_shard(shards, shard);
    }
  }
  deadlines_.gather = transport::kNever;
  pace_.gather.add(last_held_ - collecting_.end);
  // Without a usual duration no rank is left behind.
  if (const std::optional<base::Duration> usual = pace_.gather.deadline()) {
    deadlines_.patience = now + *usual / 20 + kNoteTime;
    // A second coordinator that is late itself is no help: ranks that turn to it would wait for it
    // instead.
    const bool second_is_late = lacks_piece_of(notes_->agreement().chair(Chair::kSecond));
    deadlines_.first =
        deadlines_.patience + (second_is_late ? *usual * 4 : *usual / 20) + kNoteTime * 3;
  }
  if (lags(notes_->agreement().chair(Chair::kFirst))) {
    deadlines_.first = now;
  }
  notes_->agreement().on_own_ready(shards);
}

bool TolerantRun::lacks_piece_of(std::uint16_t owner) const {
  return std::any_of(pieces_.begin(), pieces_.end(), [owner](const PieceState& piece) {
    return piece.place.owner == owner && !piece.is_held();
  });
}

// For shards that do not count, nothing more is sent or awaited.
void TolerantRun::follow_decision(RunContext& context) {
  const bool is_open = phase_ == RunPhase::kExchanging || phase_ == RunPhase::kHoldingBack;
  if (!is_open || !notes_->agreement().decision()) {
    return;
  }
  const ShardSet& shards = *notes_->agreement().decision();
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    PieceState& piece = pieces_[index];
    if (has_shard(shards, piece.place.shard)) {
      continue;
    }
    report_.peers[piece.place.owner].late = true;
    keep_what_nobody_takes(index, context);
    settle(piece, SumState::kDropped);
    messages_.withdraw_if(
        context, [&](const transport::MessageKey& key) { return is_about(key.message, index); });
  }
  pace_.was_left_behind = std::any_of(pieces_.begin(), pieces_.end(), [this](const auto& piece) {
    return is_mine(piece) && piece.is_dropped();
  });
  if (phase_ == RunPhase::kHoldingBack) {
    spare_contributions(context);
  }
  phase_.enter(RunPhase::kDecided);
}

// A part that was not contributed by the time of the decision will not count: only error feedback
// needs the caller's input any more.
void TolerantRun::spare_contributions(RunContext& context) {
  deadlines_.contribute = transport::kNever;
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    if (pieces_[index].contribution_state != ContributionState::kWaiting) {
      continue;
    }
    if (piece_context_.has_residual()) {
      pieces_[index].contribution_state.enter(ContributionState::kEncoding);
      submit(index, Work::kKeep, context);
    } else {
      pieces_[index].contribution_state.enter(ContributionState::kSpared);
      decode_if_possible(index, context);
      settle_account_if_possible(index, context);
    }
  }
}

void TolerantRun::look_whether_to_agree(base::Instant now) {
  if (now >= deadlines_.gather && !notes_->agreement().is_ready()) {
    become_ready(now);
  }
  if (now >= deadlines_.patience) {
    deadlines_.patience = transport::kNever;
    notes_->agreement().on_patience_over();
  }
  if (now >= deadlines_.first) {
    deadlines_.first = transport::kNever;
    notes_->agreement().on_first_late();
    // If this rank is the second, it has READYs to wait for.
    deadlines_.patience = now + kNoteTime;
  }
}

}  // namespace spillway::collective
