// SPDX-License-Identifier: Apache-2.0
//
// Accounts of a tolerant all-reduce, which say what is in its sums: receipts from owners to all
// ranks, what error feedback does with them, and what the report says.
#include <algorithm>
#include <utility>

#include "collective/tolerant/error_feedback.h"
#include "collective/tolerant/tolerant_run.h"

namespace spillway::collective {
namespace {

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

// ------------------------------------------------------------------ messages

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
  piece.account_state.enter(AccountState::kAwaited);
  ++open_accounts_;
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

// ------------------------------------------------------------------ accounts

void TolerantRun::on_receipt(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  if (piece.account_state != AccountState::kAwaited) {
    return;
  }
  piece.receipt = parse_receipt(piece.receipt_bytes, receipt_shape(piece), config_.group.workers());
  piece.account_state.enter(AccountState::kReceived);
  settle_account_if_possible(index, context);
}

// By then it is known what was sent, and the residual is all of it.
void TolerantRun::settle_account_if_possible(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  if (piece.account_state != AccountState::kReceived || !piece.has_contributed()) {
    return;
  }
  const bool was_sent = piece.contribution_state == ContributionState::kSent;
  if (piece_context_.has_residual() && was_sent && !piece.receipt.uses_nothing()) {
    piece.account_state.enter(AccountState::kSettling);
    submit(index, Work::kSettle, context);
  } else {
    close_account(piece);
  }
}

void TolerantRun::close_account(PieceState& piece) {
  piece.account_state.enter(AccountState::kSettled);
  --open_accounts_;
}

// The piece's shard is about to be dropped. What was encoded or added up is kept, or comes back at
// the end; this rank's part of a sum that was never formed joins the residual now.
void TolerantRun::keep_what_nobody_takes(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  if (piece.account_state == AccountState::kAwaited ||
      piece.account_state == AccountState::kReceived) {
    close_account(piece);
  }
  if (piece.sum_state == SumState::kCollecting && piece_context_.has_residual()) {
    submit(index, Work::kKeep, context);
  }
}

void TolerantRun::on_kept(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  if (piece.contribution_state == ContributionState::kEncoding) {  // only pieces of other owners
    piece.contribution_state.enter(ContributionState::kSpared);
    decode_if_possible(index, context);
    settle_account_if_possible(index, context);
  }
}

void TolerantRun::give_back_dropped() {
  for (PieceState& piece : pieces_) {
    if (piece.is_dropped()) {
      clear_output(piece_context_, piece);
      restore(piece_context_, piece);
    }
  }
}

// ------------------------------------------------------------------ the report

// Reports shards as their owners said; for shards without receipts, that no rank was left out.
void TolerantRun::complete_report() {
  std::vector<Extent> absent;
  std::vector<ShardDelivery>& shards = report_.shards;
  for (const PieceState& piece : pieces_) {
    if (piece.sum_state == SumState::kElsewhere) {
      continue;  // pieces of other servers
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
    const bool is_known = has_accounts() || is_mine(piece);
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
