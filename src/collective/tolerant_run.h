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
// The caller's input is read only until its encoding is done, so a run that is done never touches
// the caller's memory.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "collective/agreement.h"
#include "collective/byte_payload.h"
#include "collective/coded_payload.h"
#include "collective/operation_run.h"
#include "collective/pace.h"
#include "collective/plan_run.h"
#include "collective/tolerant_layout.h"
#include "transport/message_table.h"

namespace spillway::collective {

class TolerantRun final : public OperationRun, private AgreementPort {
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
  OperationReport& report() override { return report_; }

 private:
  enum class Work : std::uint8_t { kEncode, kAddUp, kDecode };

  // One piece, seen from this rank.
  struct Piece {
    TolerantPiece place;
    bool is_encoded = false;  // its contribution has been read from the caller's memory
    bool has_come = false;    // its sum has been received
    bool is_held = false;     // its sum is in the output
    bool is_dropped = false;  // its shard does not count
    std::unique_ptr<CodedSource> contribution;
    std::unique_ptr<CodedSink> sum;
    // At its owner.
    std::vector<std::unique_ptr<CodedSink>> contributions;  // by rank
    std::uint16_t open_contributions = 0;
    std::uint16_t ended_contributions = 0;
    bool is_adding_up = false;
    std::unique_ptr<CodedSource> result;
    std::uint16_t contributors = 0;
    double drift = 0.0;
  };

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

  struct KeyHash {
    std::size_t operator()(const transport::MessageKey& key) const {
      return transport::hash_of(key);
    }
  };

  using NoteBytes = std::vector<std::uint8_t>;
  struct Note {
    std::uint16_t to;
    std::uint32_t part;
    NoteBytes bytes;
  };

  // ---- calculations, on any thread
  void encode(Piece& piece, std::uint32_t index);
  void add_up(Piece& piece, std::uint32_t index);
  void decode(Piece& piece);
  std::vector<float> own_values(const Extent& extent) const;
  void store(const Extent& extent, std::span<const float> values) const;

  // ---- messages
  wire::MessageId id_of(wire::Phase phase, std::uint32_t part, std::uint16_t source) const;
  base::Status expect_all(RunContext& context);
  base::Status expect_coded(const wire::MessageId& id, const packetize::PacketPlan& plan,
                            const transport::LossPolicy& loss, transport::PayloadSink& sink,
                            RunContext& context);
  base::Status expect_note(std::uint16_t from, std::uint32_t part, RunContext& context);
  base::Status send_coded(const wire::MessageId& id, std::uint16_t to, CodedSource& source,
                          const transport::LossPolicy& loss, RunContext& context);
  base::Status expect_notes(RunContext& context);
  base::Status send_note(const Note& note, RunContext& context);
  void withdraw_if(RunContext& context,
                   const std::function<bool(const transport::MessageKey&)>& condition);
  transport::LossPolicy reduce_loss() const;
  transport::LossPolicy gather_loss() const;

  // ---- steps
  void submit(std::uint32_t piece, Work work, RunContext& context);
  void on_contribution(const transport::ReceiveReport& report, RunContext& context);
  void on_note(const transport::ReceiveReport& report);
  void add_up_if_complete(std::uint32_t index, RunContext& context);
  base::Status on_sum(std::uint32_t index, RunContext& context);
  void decode_if_possible(std::uint32_t index, RunContext& context);
  void stop_collecting(RunContext& context);
  bool waits_for_laggards_only(const Piece& piece) const;
  bool lags(std::uint16_t rank) const { return pace_.is_lagging[rank]; }
  void remember_laggards();
  void look_whether_ready(base::Instant now);
  void become_ready(base::Instant now);
  void follow_decision(RunContext& context);
  void look_whether_done(RunContext& context);
  base::Status flush_notes(RunContext& context);

  bool has_deadlines() const { return agreement_ != nullptr; }
  bool is_mine(const Piece& piece) const { return piece.place.owner == setting_.group.rank; }

  // AgreementPort: kept until the endpoint is at hand.
  void send_ready(std::uint16_t to, Chair chair, const Readiness& readiness) override;
  void send_proposal(std::uint16_t to, Chair chair, const ShardSet& shards) override;
  void send_commit(std::uint16_t to, Chair chair, const ShardSet& shards) override;
  void refuse_first() override { refuses_first_ = true; }

  RunRequest request_;
  TolerantLayout layout_;
  const ExactSetting& setting_;
  Pace& pace_;
  std::span<float> residual_;
  std::uint16_t signature_;
  std::vector<Piece> pieces_;
  std::deque<PieceJob> jobs_;
  std::uint32_t jobs_out_ = 0;
  std::unordered_set<transport::MessageKey, KeyHash> messages_;  // in the endpoint

  std::unique_ptr<Agreement> agreement_;
  std::vector<Note> notes_out_;
  std::deque<NoteBytes> sent_notes_;
  std::deque<ByteSource> note_sources_;
  struct NoteSlot {
    NoteBytes bytes;
    std::unique_ptr<ByteSink> sink;
  };
  std::unordered_map<std::uint32_t, NoteSlot> notes_in_;  // by part and sender
  bool refuses_first_ = false;
  bool was_refused_ = false;

  std::size_t own_pieces_ = 0;
  std::size_t own_sums_ = 0;  // of which the sum is formed
  std::size_t held_ = 0;      // pieces in the output or dropped
  bool collect_deadline_passed_ = false;
  bool is_cut_short_ = false;  // some contribution was not waited for
  bool has_decided_ = false;
  bool is_done_ = false;
  bool is_withdrawn_ = false;
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
