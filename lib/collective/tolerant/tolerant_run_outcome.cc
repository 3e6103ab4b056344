// SPDX-License-Identifier: Apache-2.0
//
// The outcome of a tolerant all-reduce, as far as late ranks and losses shape it:
//
//   stragglers    owners sum without contributions that are later than usual
//   agreement     ranks decide which shards count: when this rank reports what it has, how long it
//                 waits for others to do so, and what follows from the decision
//   receipts      owners tell ranks what is in the sums, and error feedback keeps the rest
//   report        what the caller learns of all that
#include <algorithm>
#include <cmath>
#include <utility>

#include "collective/tolerant/error_feedback.h"
#include "collective/tolerant/tolerant_run.h"

namespace spillway::collective {
namespace {

// Time that a note may be in flight, on top of the time that it waits for.
constexpr base::Duration kNoteTime = base::microseconds(300);

// Adds the rows of a piece that no rank is in, as elements of the tensor.
void add_absent_rows(const PieceState& piece, const codec::RowLayout& rows,
                     std::vector<Extent>& absent) {
  for (std::size_t row = 0; row < piece.receipt.absent.size(); ++row) {
    if (piece.receipt.absent[row]) {
      const codec::Row place = rows.row(row);
      absent.push_back({piece.place.extent.first + place.offset, place.values});
    }
  }
}

// Joins neighbours; `extents` are in order.
std::vector<Extent> joined(const std::vector<Extent>& extents) {
  std::vector<Extent> joined;
  for (const Extent& extent : extents) {
    if (!joined.empty() && joined.back().first + joined.back().count == extent.first) {
      joined.back().count += extent.count;
    } else {
      joined.push_back(extent);
    }
  }
  return joined;
}

}  // namespace

// ------------------------------------------------------------------ deadlines

// The contributions without which no sum is formed, for so many ranks.
std::uint16_t TolerantRun::least_ranks(std::uint16_t ranks) const {
  const double least = std::ceil(tolerance().least_contributors * ranks - 1e-9);
  return static_cast<std::uint16_t>(std::clamp(least, 1.0, static_cast<double>(ranks)));
}

// This rank's own sums are formed; from now on it waits for those of others. A rank that owns
// nothing does so from the start.
void TolerantRun::end_collecting(base::Instant now) {
  collecting_.end = now;
  if (const std::optional<base::Duration> usual = pace_.gather.deadline(); usual && agrees()) {
    // The other owners may collect until their deadline, which is about the same as this rank's.
    deadlines_.gather = std::max(now, collecting_.deadline) + *usual;
  }
}

base::Status TolerantRun::on_timeout(RunContext& context) {
  if (context.now >= deadlines_.contribute) {
    contribute(context);
  }
  if (context.now >= deadlines_.collect) {
    // Checked again with every contribution that ends, so the timer is not needed again.
    collecting_.is_overdue = true;
    deadlines_.collect = transport::kNever;
    stop_collecting(context);
  }
  if (agrees()) {
    check_agreement_deadlines(context.now);
  }
  return advance(context);
}

// Time is up: pieces with enough contributions go on with what they have. Contributions that are
// cut come back through on_contribution().
void TolerantRun::stop_collecting(RunContext& context) {
  const std::uint16_t least = least_ranks(config_.group.workers());
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    const PieceState& piece = pieces_[index];
    if (!is_mine(piece) || piece.open_contributions == 0 || piece.on_time < least ||
        !(collecting_.is_overdue || waits_for_stragglers_only(piece))) {
      continue;
    }
    collecting_.is_cut_short = true;
    for (std::uint16_t from = 0; from < config_.group.workers(); ++from) {
      if (from != config_.group.rank) {
        context.cancel(message_id(wire::Phase::kReduce, index, from));
      }
    }
  }
}

// Everything else has come, and nothing has been heard lately from the ranks that are missing.
bool TolerantRun::waits_for_stragglers_only(const PieceState& piece) const {
  if (!has_deadlines() || piece.open_contributions == 0) {
    return false;
  }
  std::uint16_t stragglers = 0;
  for (std::uint16_t from = 0; from < config_.group.workers(); ++from) {
    const PlaneSink* sink = piece.contributions[from].get();
    stragglers = static_cast<std::uint16_t>(
        stragglers + (sink != nullptr && is_straggler(from) && !sink->has_begun() ? 1 : 0));
  }
  return stragglers >= piece.open_contributions;
}

void TolerantRun::remember_stragglers() {
  for (std::uint16_t rank = 0; rank < config_.group.world; ++rank) {
    pace_.is_straggler[rank] = report_.peers[rank].late && !was_on_time_[rank];
  }
}

// ------------------------------------------------------------------ agreement

void TolerantRun::become_ready_if_complete(base::Instant now) {
  if (!agrees() || notes_->agreement().is_ready() || collecting_.sums < collecting_.pieces) {
    return;
  }
  last_held_ = now;
  const bool has_all = std::all_of(pieces_.begin(), pieces_.end(), [this](const PieceState& piece) {
    return piece.is_held() ||
           (piece.sum && is_straggler(piece.place.owner) && !piece.sum->has_begun());
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
    deadlines_.others_ready = now + *usual / 20 + kNoteTime;
    // A second coordinator that is late itself is no help: ranks that turn to it would wait for it
    // instead.
    const bool second_is_late =
        lacks_piece_of(notes_->agreement().coordinator(Coordinator::kSecond));
    deadlines_.first =
        deadlines_.others_ready + (second_is_late ? *usual * 4 : *usual / 20) + kNoteTime * 3;
  }
  if (is_straggler(notes_->agreement().coordinator(Coordinator::kFirst))) {
    deadlines_.first = now;
  }
  notes_->agreement().on_own_ready(shards);
}

bool TolerantRun::lacks_piece_of(std::uint16_t owner) const {
  return std::any_of(pieces_.begin(), pieces_.end(), [owner](const PieceState& piece) {
    return piece.place.owner == owner && !piece.is_held();
  });
}

void TolerantRun::check_agreement_deadlines(base::Instant now) {
  if (now >= deadlines_.gather && !notes_->agreement().is_ready()) {
    become_ready(now);
  }
  if (now >= deadlines_.others_ready) {
    deadlines_.others_ready = transport::kNever;
    notes_->agreement().on_wait_over();
  }
  if (now >= deadlines_.first) {
    deadlines_.first = transport::kNever;
    notes_->agreement().on_first_late();
    // If this rank is the second, it has READYs to wait for.
    deadlines_.others_ready = now + kNoteTime;
  }
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
    keep_dropped_part(index, context);
    settle(piece, SumState::kDropped);
    messages_.withdraw_if(
        context, [&](const transport::MessageKey& key) { return is_about(key.message, index); });
  }
  pace_.was_left_behind = std::any_of(pieces_.begin(), pieces_.end(), [this](const auto& piece) {
    return is_mine(piece) && piece.is_dropped();
  });
  if (phase_ == RunPhase::kHoldingBack) {
    skip_contributions(context);
  }
  phase_.enter(RunPhase::kDecided);
}

// A part that was not contributed by the time of the decision will not count: only error feedback
// needs the caller's input any more.
void TolerantRun::skip_contributions(RunContext& context) {
  deadlines_.contribute = transport::kNever;
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    if (pieces_[index].contribution_state != ContributionState::kWaiting) {
      continue;
    }
    if (piece_context_.has_residual()) {
      pieces_[index].contribution_state.enter(ContributionState::kEncoding);
      submit(index, Work::kKeep, context);
    } else {
      pieces_[index].contribution_state.enter(ContributionState::kSkipped);
      decode_if_possible(index, context);
      settle_receipt_if_possible(index, context);
    }
  }
}

// ------------------------------------------------------------------ messages of receipts

wire::MessageId TolerantRun::receipt_id(std::uint32_t index, std::uint16_t owner) const {
  return message_id(AgreementNotes::kPhase, kFirstReceipt + index, owner);
}

bool TolerantRun::is_receipt(const wire::MessageId& id) {
  return id.phase == AgreementNotes::kPhase && id.piece >= kFirstReceipt;
}

// True if the message is one of the piece's: a contribution, a sum, a receipt.
bool TolerantRun::is_about(const wire::MessageId& id, std::uint32_t index) const {
  return id.phase == AgreementNotes::kPhase ? is_receipt(id) && id.piece - kFirstReceipt == index
                                            : id.piece == index;
}

ReceiptShape TolerantRun::receipt_shape(const PieceState& piece) const {
  const packetize::PacketPlan reduce = layout_.reduce_plan(piece.place).value();
  return {reduce.layout().row_count(), piece_context_.has_feedback() ? reduce.packet_count() : 0};
}

base::Status TolerantRun::expect_receipt(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  piece.receipt_bytes.resize(receipt_shape(piece).bytes());
  piece.receipt_sink = std::make_unique<ByteSink>(piece.receipt_bytes.data(),
                                                  piece.receipt_bytes.size(), config_.layout);
  piece.receipt_state.enter(ReceiptState::kAwaited);
  ++open_receipts_;
  return messages_.expect(config_.layout.receive_options(receipt_id(index, piece.place.owner),
                                                         piece.receipt_bytes.size(),
                                                         operation().priority, *piece.receipt_sink),
                          context);
}

// Sends to all ranks that may have contributed, whether or not they have.
base::Status TolerantRun::send_receipts(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  const std::size_t workers = piece.receipts.size();  // 0 without receipts
  for (std::size_t distance = 1; distance <= workers; ++distance) {
    const std::size_t to = (config_.group.rank + distance) % workers;
    std::vector<std::uint8_t>& bytes = piece.receipts[to];
    if (bytes.empty()) {
      continue;  // this rank's own
    }
    ByteSource& source = *piece.receipts_on_their_way.emplace_back(
        std::make_unique<ByteSource>(bytes.data(), bytes.size(), config_.layout));
    transport::SendOptions options = config_.layout.send_options(
        receipt_id(index, config_.group.rank), bytes.size(), operation().priority, source);
    options.to = static_cast<std::uint16_t>(to);
    if (base::Status status = messages_.send(options, context); !status.ok()) {
      return status;
    }
  }
  return {};
}

// ------------------------------------------------------------------ receipts

void TolerantRun::on_receipt(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  if (piece.receipt_state != ReceiptState::kAwaited) {
    return;
  }
  piece.receipt = parse_receipt(piece.receipt_bytes, receipt_shape(piece), config_.group.workers());
  piece.receipt_state.enter(ReceiptState::kReceived);
  settle_receipt_if_possible(index, context);
}

// By then it is known what was sent, and the residual is all of it.
void TolerantRun::settle_receipt_if_possible(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  if (piece.receipt_state != ReceiptState::kReceived || !piece.has_contributed()) {
    return;
  }
  const bool was_sent = piece.contribution_state == ContributionState::kSent;
  if (piece_context_.has_residual() && was_sent && !piece.receipt.uses_nothing()) {
    piece.receipt_state.enter(ReceiptState::kSettling);
    submit(index, Work::kSettle, context);
  } else {
    close_receipt(piece);
  }
}

void TolerantRun::close_receipt(PieceState& piece) {
  piece.receipt_state.enter(ReceiptState::kSettled);
  --open_receipts_;
}

// The piece's shard is about to be dropped. Encoded and added values are kept, or come back at
// the end; this rank's part of a sum that was never formed joins the residual now.
void TolerantRun::keep_dropped_part(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  if (piece.receipt_state == ReceiptState::kAwaited ||
      piece.receipt_state == ReceiptState::kReceived) {
    close_receipt(piece);
  }
  if (piece.sum_state == SumState::kCollecting && piece_context_.has_residual()) {
    submit(index, Work::kKeep, context);
  }
}

void TolerantRun::on_kept(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  if (piece.contribution_state == ContributionState::kEncoding) {  // only pieces of other owners
    piece.contribution_state.enter(ContributionState::kSkipped);
    decode_if_possible(index, context);
    settle_receipt_if_possible(index, context);
  }
}

void TolerantRun::restore_dropped() {
  for (PieceState& piece : pieces_) {
    if (piece.is_dropped()) {
      clear_output(piece_context_, piece);
      restore(piece_context_, piece);
    }
  }
}

// ------------------------------------------------------------------ report

// Reports shards as their owners said; for shards without receipts, that no rank was left out. In a
// reduce-scatter a rank reports the shard that it owns, and in an all-gather there is no sum.
void TolerantRun::complete_report() {
  if (!has_contributions(operation())) {
    return;
  }
  std::vector<Extent> absent;
  std::vector<ShardDelivery>& shards = report_.shards;
  for (const PieceState& piece : pieces_) {
    if (piece.sum_state == SumState::kElsewhere) {
      continue;  // pieces whose sums never come to this rank
    }
    const bool is_new = shards.empty() || shards.back().shard != piece.place.shard;
    if (is_new) {
      shards.push_back({.shard = piece.place.shard,
                        .owner = piece.place.owner,
                        .extent = {piece.place.extent.first, 0}});
    }
    ShardDelivery& shard = shards.back();
    shard.extent.count += piece.place.extent.count;
    if (piece.is_dropped()) {
      absent.push_back(piece.place.extent);
      continue;
    }
    const bool is_known = expects_receipts() || is_mine(piece);
    const std::uint16_t in = is_known ? piece.receipt.contributors : config_.group.workers();
    if (in > 0) {
      shard.contributors = shard.contributors == 0 ? in : std::min(shard.contributors, in);
    }
    add_absent_rows(piece, layout_.gather_plan(piece.place).value().layout(), absent);
  }
  report_.absent = joined(absent);
  report_.count_contributors();
}

}  // namespace spillway::collective
