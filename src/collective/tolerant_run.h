// SPDX-License-Identifier: Apache-2.0
//
// A tolerant all-reduce by direct exchange. Each rank encodes its part of every piece and sends it
// to the piece's owner, where some of it may be lost. The owner decodes what came, adds up and
// corrects for what did not, encodes the sum once more and hands it out; everybody, the owner
// included, decodes the same bytes.
//
//   encode ──► send ═══ reduce, lossy ═══► collect ──► add up, encode ──► send ═══ gather ═══►
//   decode
//
// With deadlines (Tolerance::least_contributors) an owner goes on without contributions that are
// later than usual, and ranks agree which shards count (agreement.h); a shard whose owner is late
// is zero everywhere. The run is done when its result is complete; what a late rank still has to be
// told goes on in the background until that rank has it.
//
// In a group with parameter servers these own all pieces and contribute to none. Nobody has to
// agree then: which contributions count is the server's to say, its sums go to all workers, late
// ones included, and a worker waits for them.
//
// The caller's input is read only until its encoding is done, so a run that is done never touches
// the caller's memory.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "collective/agreement_notes.h"
#include "collective/message_set.h"
#include "collective/operation_run.h"
#include "collective/pace.h"
#include "collective/plan_run.h"
#include "collective/tolerant_layout.h"
#include "collective/tolerant_piece.h"

namespace spillway::collective {

class TolerantRun final : public OperationRun {
 public:
  // Setting and pace outlive the run. `residual`: of the tensor, for error feedback; or empty.
  TolerantRun(const RunRequest& request, TolerantLayout layout, const ExactSetting& setting,
              Pace& pace, std::span<float> residual);

  base::Status start(RunContext& context) override;
  base::Status on_received(const transport::ReceiveReport& report, RunContext& context) override;
  base::Status on_sent(const transport::SendReport& report, RunContext& context) override;
  base::Status on_computed(std::uint32_t tag, RunContext& context) override;
  base::Instant next_timeout() const override;
  base::Status on_timeout(RunContext& context) override;

  bool is_done() const override { return is_done_; }
  bool is_idle() const override { return jobs_out_ == 0 && messages_.empty(); }
  void withdraw(RunContext& context) override;

  std::size_t message_count() const override;
  std::vector<std::uint16_t> awaited() const override;
  bool needs(std::uint16_t peer) const override;
  OperationReport& report() override { return report_; }

 private:
  enum class Work : std::uint8_t { kEncode, kAddUp, kDecode };

  class PieceJob final : public ComputeJob {
   public:
    PieceJob(TolerantRun& owner, std::uint32_t piece, Work work)
        : owner_(owner), piece_(piece), work_(work) {}
    void run() override;

   private:
    TolerantRun& owner_;
    std::uint32_t piece_;
    Work work_;
  };

  // ---- messages
  wire::MessageId id_of(wire::Phase phase, std::uint32_t part, std::uint16_t source) const;
  base::Status expect_all(RunContext& context);
  base::Status expect_contributions(std::uint32_t index, RunContext& context);
  base::Status expect_sum(std::uint32_t index, RunContext& context);
  base::Status expect_coded(const wire::MessageId& id, const packetize::PacketPlan& plan,
                            const transport::LossPolicy& loss, transport::PayloadSink& sink,
                            RunContext& context);
  base::Status send_coded(const wire::MessageId& id, std::uint16_t to, CodedSource& source,
                          const transport::LossPolicy& loss, RunContext& context);
  transport::LossPolicy reduce_loss() const;
  transport::LossPolicy gather_loss() const;

  // ---- steps
  void submit(std::uint32_t piece, Work work, RunContext& context);
  void contribute(RunContext& context);
  void spare_contributions(RunContext& context);
  void on_contribution(const transport::ReceiveReport& report, RunContext& context);
  void add_up_if_complete(std::uint32_t index, RunContext& context);
  base::Status on_sum(std::uint32_t index, RunContext& context);
  void decode_if_possible(std::uint32_t index, RunContext& context);
  void stop_collecting(RunContext& context);
  bool waits_for_laggards_only(const PieceState& piece) const;
  bool lags(std::uint16_t rank) const { return pace_.is_lagging[rank]; }
  void remember_laggards();
  void look_whether_done(RunContext& context);
  // Whatever was just done may have been the last thing; then what there is to say is sent.
  base::Status go_on(RunContext& context);

  // ---- agreement (tolerant_run_agreement.cc)
  void look_whether_ready(base::Instant now);
  void become_ready(base::Instant now);
  bool lacks_piece_of(std::uint16_t owner) const;
  void look_whether_to_agree(base::Instant now);
  void follow_decision(RunContext& context);

  bool has_deadlines() const { return request_.operation.tolerance->least_contributors > 0.0; }
  bool agrees() const { return notes_ != nullptr; }
  bool is_mine(const PieceState& piece) const { return piece.place.owner == setting_.group.rank; }

  RunRequest request_;
  TolerantLayout layout_;
  const ExactSetting& setting_;
  Pace& pace_;
  PieceWork work_;
  std::uint16_t signature_;
  std::vector<PieceState> pieces_;
  std::deque<PieceJob> jobs_;
  std::uint32_t jobs_out_ = 0;
  MessageSet messages_;
  std::unique_ptr<AgreementNotes> notes_;  // with deadlines, where every rank owns something

  std::size_t own_pieces_ = 0;
  std::size_t own_sums_ = 0;  // of which the sum is formed
  std::size_t held_ = 0;      // pieces in the output or dropped
  bool collect_deadline_passed_ = false;
  bool is_cut_short_ = false;  // some contribution was not waited for
  bool has_decided_ = false;
  bool is_done_ = false;
  bool is_withdrawn_ = false;
  base::Instant contribute_at_ = transport::kNever;  // unless there is a decision by then
  base::Instant collect_deadline_;
  base::Instant collect_until_ = transport::kNever;  // the same, until it has passed
  base::Instant gather_until_ = transport::kNever;
  base::Instant patience_until_ = transport::kNever;
  base::Instant first_until_ = transport::kNever;
  base::Instant last_contribution_;
  base::Instant sums_formed_;
  base::Instant last_held_;
  std::vector<bool> was_heard_;  // by rank: something of it came in time
  OperationReport report_;
};

}  // namespace spillway::collective
