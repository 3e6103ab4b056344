// SPDX-License-Identifier: Apache-2.0
//
// A tolerant all-reduce by direct exchange. Each rank encodes its part of every piece and sends it
// to the piece's owner; some of it may be lost on the way. The owner decodes what came, adds up,
// corrects for what did not come, encodes the sum once more and hands it out. All ranks, the owner
// included, decode the same bytes.
//
//   encode ─► send ══ reduce, lossy ══► collect ─► add up, encode ─► send ══ gather ══► decode
//
// A reduce-scatter is the first half: the owner of a piece keeps the sum as it is, and a rank has
// done its part when it has encoded its contributions. An all-gather is the second half: the owner
// encodes its part of the tensor as if that were the sum.
//
// With deadlines (Tolerance::least_contributors) an owner goes on without contributions that are
// later than usual, and ranks agree which shards count (agreement.h). A shard whose owner is late
// is zero everywhere. The run is done when its result is complete; what a late rank still has to be
// told goes on in the background until that rank has it.
//
// If ranks may be left out of a sum, or use error feedback, owners also send every rank a receipt
// (payload.h). The run is then done when it has the receipts of all shards that count.
//
// In a group with parameter servers these own all pieces and contribute to none. No agreement is
// needed then: the server decides which contributions count, its sums go to all workers, late ones
// included, and a worker waits for them.
//
// Pieces of a shard begin in their order, as many at a time as the window allows: the next begins
// when one has ended at this rank, its messages included. All ranks keep that order, and pieces
// need nothing of each other, so the first of a shard that has not ended everywhere goes on
// everywhere. With deadlines all begin at once: a late rank must not hold up what others can do
// without it.
//
// States of pieces and of the run: states.h. The caller's input is read only until its encoding is
// done, so a run that is done never touches the caller's memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/units.h"
#include "collective/piece_run.h"
#include "collective/tolerant/agreement.h"
#include "collective/tolerant/states.h"
#include "collective/tolerant/tolerant_piece.h"

namespace spillway::collective {

// Learns how long things usually take, and which ranks are usually late; deadlines follow from it.
// A wait that was cut off counts only as long as the ranks took that were waited for, so one slow
// rank does not teach all others patience. When many become slower, they are waited for, and the
// deadline follows.
//
// Bounded: kWindow durations each, kMaxTensors entries. One thread.

class UsualDuration {
 public:
  static constexpr std::size_t kWindow = 32;
  static constexpr std::size_t kMin = 8;  // durations before there is a usual one

  void add(base::Duration duration) {
    durations_[added_ % kWindow] = duration;
    ++added_;
  }
  // The duration that three of four stayed below, plus an eighth of it or twice the spread, and
  // some slack.
  std::optional<base::Duration> deadline() const {
    if (added_ < kMin) {
      return std::nullopt;
    }
    std::array<base::Duration, kWindow> sorted = durations_;
    const std::size_t size = std::min<std::size_t>(added_, kWindow);
    std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(size));
    const base::Duration usual = sorted[size * 3 / 4];
    const base::Duration spread = usual - sorted[size / 2];
    return usual + std::max(usual / 8, spread * 2) + kSlack;
  }

 private:
  static constexpr base::Duration kSlack = base::microseconds(200);  // for the scheduler

  std::array<base::Duration, kWindow> durations_{};
  std::uint64_t added_ = 0;
};

// For the two halves of an all-reduce:
struct Pace {
  UsualDuration reduce;  // from its start until all contributions to a rank's own shard are there
  UsualDuration gather;  // from then on until all shards are
  // By rank: nothing from it came in time last time. It is not waited for until something does.
  std::vector<bool> is_straggler;
  bool was_left_behind = false;  // the others did not wait for this rank's shard last time
};

// Paces by key: operations with one key are alike.
class PaceCache {
 public:
  Pace& of(std::uint64_t key) {
    if (paces_.size() >= kMaxTensors && !paces_.contains(key)) {
      paces_.erase(paces_.begin());
    }
    return paces_[key];
  }

 private:
  static constexpr std::size_t kMaxTensors = 4096;
  std::map<std::uint64_t, Pace> paces_;
};

// The calculations of a piece (states.h).
enum class TolerantWork : std::uint8_t { kEncode, kAddUp, kDecode, kSettle, kKeep };

class TolerantRun final : public PieceRun<TolerantWork> {
 public:
  // Config and pace outlive the run. `window`: pieces of a shard at a time. `residual`: of the
  // tensor, for error feedback; or empty.
  TolerantRun(const Operation& operation, std::uint64_t key, TolerantLayout layout,
              std::size_t window, const RunConfig& config, Pace& pace, std::span<float> residual);

  base::Status start(RunContext& context) override;
  base::Status on_received(const transport::ReceiveReport& report, RunContext& context) override;
  base::Status on_sent(const transport::SendReport& report, RunContext& context) override;
  base::Instant next_timeout() const override;
  base::Status on_timeout(RunContext& context) override;

  bool is_done() const override { return phase_ == RunPhase::kDone; }

  std::size_t message_count() const override;
  std::vector<std::uint16_t> awaited() const override;
  bool needs(std::uint16_t peer) const override;
  void on_left(std::uint16_t peer, RunContext& context) override;

 private:
  // Receipts share their phase with the agreement's notes, which have the lower numbers.
  static constexpr std::uint32_t kFirstReceipt = 8;

  using Work = TolerantWork;

  base::Status calculate(std::uint32_t index, Work work) override;
  base::Status calculated(std::uint32_t index, Work work, RunContext& context) override;

  // ---- messages
  base::Status expect_first(RunContext& context);
  base::Status expect_piece(std::uint32_t index, RunContext& context);
  base::Status expect_contributions(std::uint32_t index, RunContext& context);
  base::Status expect_sum(std::uint32_t index, RunContext& context);
  base::Result<std::unique_ptr<PlaneSink>> make_sink(const wire::MessageId& id,
                                                     const packetize::PacketPlan& plan);
  base::Status expect_planes(const wire::MessageId& id, const packetize::PacketPlan& plan,
                             const transport::LossPolicy& loss, transport::PayloadSink& sink,
                             RunContext& context);
  base::Status send_planes(const wire::MessageId& id, std::uint16_t to, PlaneSource& source,
                           const transport::LossPolicy& loss, RunContext& context);
  std::uint8_t importance_of(const transport::LossPolicy& loss) const;
  transport::LossPolicy reduce_loss() const;
  transport::LossPolicy gather_loss() const;

  // ---- steps
  void submit(std::uint32_t piece, Work work, RunContext& context);
  std::vector<std::uint32_t> order_of_contributions() const;
  void contribute(RunContext& context);
  void encode(std::uint32_t index, RunContext& context);
  bool is_beyond_window(std::uint32_t index) const;
  bool has_ended(std::uint32_t index) const;
  base::Status begin_next(std::uint32_t ended, RunContext& context);
  void on_contribution(const transport::ReceiveReport& report, RunContext& context);
  void add_up_if_complete(std::uint32_t index, RunContext& context);
  base::Status on_encoded(std::uint32_t index, RunContext& context);
  base::Status on_sum(std::uint32_t index, RunContext& context);
  void on_decoded(PieceState& piece);
  void decode_if_possible(std::uint32_t index, RunContext& context);
  void settle(PieceState& piece, SumState state);
  void finish_if_complete(RunContext& context);
  base::Status after_message(const wire::MessageId& id, RunContext& context);
  // Called after every step, which may have been the last one; also sends the agreement's notes.
  base::Status advance(RunContext& context);

  // ---- deadlines (tolerant_run_outcome.cc)
  std::uint16_t least_ranks(std::uint16_t ranks) const;
  void end_collecting(base::Instant now);
  void stop_collecting(RunContext& context);
  bool waits_for_stragglers_only(const PieceState& piece) const;
  bool is_straggler(std::uint16_t rank) const { return pace_.is_straggler[rank]; }
  void remember_stragglers();

  // ---- agreement
  void become_ready_if_complete(base::Instant now);
  void become_ready(base::Instant now);
  bool lacks_piece_of(std::uint16_t owner) const;
  void check_agreement_deadlines(base::Instant now);
  void follow_decision(RunContext& context);
  void skip_contributions(RunContext& context);

  // ---- receipts
  wire::MessageId receipt_id(std::uint32_t index, std::uint16_t owner) const;
  static bool is_receipt(const wire::MessageId& id);
  bool is_about(const wire::MessageId& id, std::uint32_t index) const;
  ReceiptShape receipt_shape(const PieceState& piece) const;
  base::Status expect_receipt(std::uint32_t index, RunContext& context);
  base::Status send_receipts(std::uint32_t index, RunContext& context);
  void on_receipt(std::uint32_t index, RunContext& context);
  void settle_receipt_if_possible(std::uint32_t index, RunContext& context);
  void close_receipt(PieceState& piece);
  void keep_dropped_part(std::uint32_t index, RunContext& context);
  void on_kept(std::uint32_t index, RunContext& context);
  void restore_dropped();
  void complete_report();

  bool has_deadlines() const { return tolerance().least_contributors > 0.0; }
  bool agrees() const { return notes_ != nullptr; }
  bool expects_receipts() const { return has_receipts(operation(), config_.group); }
  bool is_mine(const PieceState& piece) const { return piece.is_mine(config_.group); }
  const Tolerance& tolerance() const { return *operation().tolerance; }

  // When the clock ends something. kNever: not set, or over.
  struct Deadlines {
    base::Instant contribute = transport::kNever;    // this rank holding back
    base::Instant collect = transport::kNever;       // contributions to this rank's pieces
    base::Instant gather = transport::kNever;        // the others' sums
    base::Instant others_ready = transport::kNever;  // for others to say what they have
    base::Instant first = transport::kNever;         // for the first coordinator to decide

    base::Instant next() const {
      return std::min({contribute, collect, gather, others_ready, first});
    }
  };
  // Progress of the pieces that this rank owns.
  struct Collecting {
    std::size_t pieces = 0;
    std::size_t sums = 0;                            // pieces whose sum is formed
    base::Instant deadline;                          // passed or not; zero: none
    bool is_overdue = false;                         // the deadline has passed
    bool is_cut_short = false;                       // some contribution was not waited for
    std::optional<base::Instant> last_contribution;  // when the latest ended by itself, if any did
    base::Instant end;                               // when the last sum was formed
  };

  TolerantLayout layout_;
  std::size_t window_;  // pieces of a shard at a time
  Pace& pace_;
  PieceContext piece_context_;
  Tracked<RunPhase> phase_{RunPhase::kNew};
  std::vector<PieceState> pieces_;
  std::size_t settled_ = 0;  // pieces for which nothing is left to be done
  std::size_t open_receipts_ = 0;
  std::unique_ptr<AgreementNotes> notes_;  // with deadlines and without servers
  Deadlines deadlines_;
  Collecting collecting_;
  base::Instant last_held_;
  std::vector<bool> was_on_time_;  // by rank: something from it came in time
};

}  // namespace spillway::collective
