// SPDX-License-Identifier: Apache-2.0
//
// How a tolerant all-reduce, or one of its halves, divides its tensor, and the calculations for one
// piece.
//
// A shard per owner, pieces per shard, a message per piece. Owners are the group's parameter
// servers or, without these, all ranks. The owner of a shard moves on by one with every operation,
// so that a rank that is often late does not always cost the same coordinates. In a reduce-scatter
// and an all-gather the tensor is that of all ranks, and rank r owns part r. The layout is a pure
// value; every rank computes the same.
//
// Seen from one rank, a piece is a contribution to encode, at its owner a sum to form, and
// elsewhere a sum to decode; states.h has its states. Calculations may run on any thread, one at a
// time per piece. They touch only the piece's own extent of the caller's memory, and no state.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/halves.h"
#include "collective/operation_run.h"
#include "collective/shards.h"
#include "collective/tolerant/payload.h"
#include "collective/tolerant/states.h"
#include "packetize/packet_plan.h"

namespace spillway::collective {

struct TolerantPiece {
  Extent extent;  // of the tensor
  std::uint16_t shard = 0;
  std::uint16_t owner = 0;
};

struct TolerantLayout {
  // For the operation with this number; `shares` are the owners'. Fails if packets cannot carry the
  // precision.
  static base::Result<TolerantLayout> make(
      const Operation& operation, const Group& group, std::uint64_t sequence,
      const packetize::PacketLimits& limits, std::size_t piece_bytes, const Shares& shares = {},
      transport::Carrier carrier = transport::Carrier::kDatagrams);

  // Most pieces of one operation: their messages, receipts included, are numbered in 16 bits.
  static constexpr std::size_t kMaxPieces = UINT16_MAX - 8;

  // Plans of a piece's messages, to its owner and back.
  base::Result<packetize::PacketPlan> reduce_plan(const TolerantPiece& piece) const;
  base::Result<packetize::PacketPlan> gather_plan(const TolerantPiece& piece) const;

  packetize::PacketLimits limits;
  transport::Carrier carrier = transport::Carrier::kDatagrams;  // of pieces
  packetize::Encoding reduce_encoding;
  packetize::Encoding gather_encoding;
  std::vector<TolerantPiece> pieces;
};

struct PieceState {
  PieceState(const TolerantPiece& piece, const Group& group, Kind kind = Kind::kAllReduce)
      : place(piece),
        contribution_state(is_mine(group) || group.is_server() || kind == Kind::kAllGather
                               ? ContributionState::kNone
                               : ContributionState::kWaiting),
        sum_state(is_mine(group)                                      ? SumState::kCollecting
                  : group.is_server() || kind == Kind::kReduceScatter ? SumState::kElsewhere
                                                                      : SumState::kAwaited),
        receipt_state(ReceiptState::kNone) {}

  bool is_mine(const Group& group) const { return place.owner == group.rank; }
  bool is_held() const { return sum_state == SumState::kHeld; }
  bool is_dropped() const { return sum_state == SumState::kDropped; }
  // Nothing is left to do for it.
  bool is_settled() const {
    return is_held() || is_dropped() || (sum_state == SumState::kElsewhere && has_contributed());
  }
  // The caller's input is not needed any more: it was sent, or never will be.
  bool has_contributed() const {
    return contribution_state != ContributionState::kWaiting &&
           contribution_state != ContributionState::kEncoding;
  }

  TolerantPiece place;
  Tracked<ContributionState> contribution_state;
  Tracked<SumState> sum_state;
  Tracked<ReceiptState> receipt_state;
  bool has_begun = false;  // its messages are expected, and sent once they exist
  std::unique_ptr<PlaneSource> contribution;
  std::unique_ptr<PlaneSink> sum;
  Receipt receipt;  // from its owner; at the owner, its own without `used`
  std::vector<std::uint8_t> receipt_bytes;
  std::unique_ptr<ByteSink> receipt_sink;
  // With error feedback, if the shard may still be dropped: the residual in that case.
  std::vector<float> whole;

  // At its owner:
  std::vector<std::unique_ptr<PlaneSink>> contributions;  // by rank
  std::vector<bool> was_cut;  // by rank: its contribution had not ended at the deadline
  std::uint16_t open_contributions = 0;
  std::uint16_t on_time = 0;  // contributions that ended in time, and the owner's own
  std::unique_ptr<PlaneSource> result;
  std::vector<std::vector<std::uint8_t>> receipts;  // by rank
  std::vector<std::unique_ptr<ByteSource>> receipts_on_their_way;
};

// Shared by the pieces of a run.
struct PieceContext {
  const Operation& operation;
  const RunConfig& config;
  std::span<float> residual;  // of the tensor, for error feedback; or empty

  Extent in_input(const Extent& extent) const {
    return collective::in_input(operation, config.group.rank, extent);
  }
  Extent in_output(const Extent& extent) const {
    return collective::in_output(operation, config.group.rank, extent);
  }
  // The extent's part of the residual, which may be in a device's memory; null without one.
  float* residual_at(const Extent& extent) const {
    return residual.empty() ? nullptr : residual.data() + extent.first;
  }
  // has_residual(): this rank keeps what does not arrive. has_feedback(): all ranks do, and owners
  // tell them what arrived.
  bool has_residual() const { return !residual.empty(); }
  bool has_feedback() const { return operation.tolerance->feedback_tensor != 0; }
  // A sum that was formed may turn out not to count: ranks agree which do.
  bool may_drop() const {
    return operation.tolerance->least_contributors > 0.0 && config.group.servers == 0;
  }
};

// Calculations fail only where a device does (Operation::device).
//
// Encodes this rank's part, plus its residual with error feedback. The residual keeps all of that
// until the owner says what arrived.
base::Status encode_contribution(const PieceContext& context, const wire::MessageId& message,
                                 PieceState& piece);
// Adds up what came, the owner's own part first, then by rank. Corrects for what did not come,
// encodes the sum and writes the receipts; the output becomes what all ranks will decode. If a
// contribution was cut, or error feedback returns what does not count, a row counts only if enough
// of it came (about half). With less, what is missing is a greater error than doing without the
// rank. A server has no part of its own and no output. In a reduce-scatter the output is the sum
// itself, and nothing is encoded.
base::Status add_up_contributions(const PieceContext& context, const wire::MessageId& message,
                                  PieceState& piece);
// In an all-gather: encodes this rank's own part, plus its residual with error feedback. The output
// becomes what all ranks will decode, and the residual what that lacks.
base::Status encode_own_part(const PieceContext& context, const wire::MessageId& message,
                             PieceState& piece);
// Decodes the sum that came into the output.
base::Status decode_sum(const PieceContext& context, PieceState& piece);
// Writes zeros to the output, which is not a device's.
void clear_output(const PieceContext& context, const PieceState& piece);

}  // namespace spillway::collective
