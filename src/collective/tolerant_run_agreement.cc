// SPDX-License-Identifier: Apache-2.0
//
// How a tolerant all-reduce with deadlines takes part in the agreement on which shards count: when
// this rank says what it has, how long it waits for others to do so, what follows from the
// decision.
#include <algorithm>

#include "collective/tolerant_run.h"

namespace spillway::collective {
namespace {

// What a note may take on its way, besides what it waits for.
constexpr base::Duration kNoteTime = base::microseconds(300);

}  // namespace

void TolerantRun::look_whether_ready(base::Instant now) {
  if (!agrees() || notes_->agreement().is_ready() || own_sums_ < own_pieces_) {
    return;
  }
  last_held_ = now;
  const bool has_all = std::all_of(pieces_.begin(), pieces_.end(), [this](const PieceState& piece) {
    return piece.is_held || (piece.sum && lags(piece.place.owner) && !piece.sum->has_begun());
  });
  if (has_all) {
    become_ready(now);
  }
}

void TolerantRun::become_ready(base::Instant now) {
  ShardSet shards = no_shards(setting_.group.world);
  std::vector<bool> lacks(setting_.group.world);
  for (const PieceState& piece : pieces_) {
    lacks[piece.place.shard] = lacks[piece.place.shard] || !piece.is_held;
  }
  for (std::uint16_t shard = 0; shard < setting_.group.world; ++shard) {
    if (!lacks[shard]) {
      add_shard(shards, shard);
    }
  }
  gather_until_ = transport::kNever;
  pace_.gather.add(last_held_ - sums_formed_);
  // Without a usual duration nobody is left behind.
  if (const std::optional<base::Duration> usual = pace_.gather.deadline()) {
    patience_until_ = now + *usual / 20 + kNoteTime;
    // A second that is late itself is no help: turning to it, ranks would wait for it instead.
    const bool second_is_late = lacks_piece_of(notes_->agreement().chair(Chair::kSecond));
    first_until_ = patience_until_ + (second_is_late ? *usual * 4 : *usual / 20) + kNoteTime * 3;
  }
  if (lags(notes_->agreement().chair(Chair::kFirst))) {
    first_until_ = now;
  }
  notes_->agreement().on_own_ready(shards);
}

bool TolerantRun::lacks_piece_of(std::uint16_t owner) const {
  return std::any_of(pieces_.begin(), pieces_.end(), [owner](const PieceState& piece) {
    return piece.place.owner == owner && !piece.is_held;
  });
}

// Nothing more is sent or awaited of shards that do not count.
void TolerantRun::follow_decision(RunContext& context) {
  if (has_decided_ || !notes_->agreement().decision()) {
    return;
  }
  has_decided_ = true;
  const ShardSet& shards = *notes_->agreement().decision();
  std::vector<bool> is_empty(setting_.group.world);
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    PieceState& piece = pieces_[index];
    if (has_shard(shards, piece.place.shard)) {
      continue;
    }
    is_empty[piece.place.shard] = true;
    report_.peers[piece.place.owner].late = true;
    held_ += piece.is_held ? 0 : 1;
    piece.is_held = false;
    piece.is_dropped = true;
    messages_.withdraw_if(context, [&](const transport::MessageKey& key) {
      return key.message.phase != AgreementNotes::kPhase && key.message.shard == index;
    });
  }
  report_.empty_shards =
      static_cast<std::uint16_t>(std::count(is_empty.begin(), is_empty.end(), true));
  pace_.was_left_behind = std::any_of(pieces_.begin(), pieces_.end(), [this](const auto& piece) {
    return is_mine(piece) && piece.is_dropped;
  });
  spare_contributions(context);
}

// What was not contributed by the time of the decision will not count.
void TolerantRun::spare_contributions(RunContext& context) {
  if (contribute_at_ == transport::kNever) {
    return;
  }
  contribute_at_ = transport::kNever;
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    pieces_[index].is_encoded = true;  // nobody needs the caller's input any more
    decode_if_possible(index, context);
  }
}

void TolerantRun::look_whether_to_agree(base::Instant now) {
  if (now >= gather_until_ && !notes_->agreement().is_ready()) {
    become_ready(now);
  }
  if (now >= patience_until_) {
    patience_until_ = transport::kNever;
    notes_->agreement().on_patience_over();
  }
  if (now >= first_until_) {
    first_until_ = transport::kNever;
    notes_->agreement().on_first_late();
    // As the second, this rank has polls of its own to wait for.
    patience_until_ = now + kNoteTime;
  }
}

}  // namespace spillway::collective
