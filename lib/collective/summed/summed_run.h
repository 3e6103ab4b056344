// SPDX-License-Identifier: Apache-2.0
//
// An all-reduce by sums of numbers that switches on the way may add. For each piece:
//
//   measure ─► measures to the owner, the largest back ─► encode ─► sum ─► decode
//
// where `sum` is the transport's (transport/message.h): parts go to the owner, added up by switches
// that can or by the owner itself, and results come back. All ranks decode the same numbers, so all
// end with the same bits, with switches or without.
//
// With a predicted scale (Tolerance::predicts_scale, and a named tensor that came before) a piece
// is encoded as soon as it is measured. Measures then travel beside the data for the next time;
// this time they only tell which rows are not finite.
//
// A loss bound forgives parts of chunks. A sum of few ranks is scaled up to all, and the report
// says how many there were. Late ranks are waited for.
//
// In a group with parameter servers these own all pieces and contribute to none.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "collective/piece_run.h"
#include "collective/summed/sum_piece.h"

namespace spillway::collective {

// Stages of a piece at this rank. At a server a piece has no numbers: it begins with kAgreeing and
// ends where others decode.
enum class PieceStage : std::uint8_t {
  kMeasuring,
  kAgreeing,  // on its scale
  kEncoding,
  kSumming,
  kDecoding,  // or waiting for the measures that tell which rows are not finite
  kDone,
};

enum class SumWork : std::uint8_t { kMeasure, kEncode, kDecode };

class SummedRun final : public PieceRun<SumWork> {
 public:
  // The config outlives the run. `residual`: of the tensor, for error feedback; or empty.
  SummedRun(const Operation& operation, std::uint64_t key, SumLayout layout,
            const RunConfig& config, std::span<float> residual, const ScaleCache::Entry& scales);

  base::Status start(RunContext& context) override;
  base::Status on_received(const transport::ReceiveReport& report, RunContext& context) override;
  base::Status on_sent(const transport::SendReport& report, RunContext& context) override;
  base::Status on_summed(const transport::SumReport& report, RunContext& context) override;
  base::Instant next_timeout() const override { return due_; }
  base::Status on_timeout(RunContext& context) override;

  bool is_done() const override { return done_ == pieces_.size(); }
  bool is_idle() const override { return PieceRun::is_idle() && open_sums_ == 0; }
  void withdraw(RunContext& context) override;

  std::size_t message_count() const override;
  std::vector<std::uint16_t> awaited() const override;
  void on_left(std::uint16_t peer, RunContext& context) override;

 private:
  using Work = SumWork;

  base::Status calculate(std::uint32_t index, Work work) override;
  base::Status calculated(std::uint32_t index, Work work, RunContext& context) override;

  struct Piece {
    Piece(const SumCoder& coder, const SumPlace& place, std::uint64_t key)
        : numbers(coder, place, key) {}

    SumPiece numbers;
    PieceStage stage = PieceStage::kMeasuring;
    bool is_open = false;                      // its sum is in the endpoint
    std::vector<float> scales;                 // that it is encoded with, by row
    std::vector<float> shared;                 // the largest measures, by row
    bool is_agreed = false;                    // `shared` is complete
    wire::RankSet unmeasured;                  // at its owner: ranks whose measures are missing
    std::vector<std::vector<float>> measures;  // at its owner, by rank
    std::vector<std::unique_ptr<ByteSink>> sinks;
    std::vector<std::unique_ptr<ByteSource>> sources;
  };

  bool is_mine(const Piece& piece) const {
    return piece.numbers.place().owner == config_.group.rank;
  }
  bool is_server() const { return config_.group.is_server(); }
  bool predicts(std::uint32_t index) const;
  const Tolerance& tolerance() const { return *operation().tolerance; }
  transport::SumId sum_id(std::uint32_t index) const;
  wire::RankSet awaited_by(const Piece& piece) const;

  void submit(std::uint32_t index, Work work, RunContext& context);
  base::Status expect_measures(std::uint32_t index, RunContext& context);
  base::Status send_floats(const wire::MessageId& id, std::uint16_t to,
                           std::span<const float> values, Piece& piece, RunContext& context);
  base::Status on_measured(std::uint32_t index, RunContext& context);
  void fold(Piece& piece, std::span<const float> measures);
  base::Status agree_if_complete(std::uint32_t index, RunContext& context);
  base::Status on_agreed(std::uint32_t index, RunContext& context);
  void encode(std::uint32_t index, std::span<const float> scales, RunContext& context);
  void encode_if_possible(std::uint32_t index, RunContext& context);
  base::Status begin_sum(std::uint32_t index, RunContext& context);
  void count_parts(const Piece& piece, const transport::SumReport& report);
  void decode_if_possible(std::uint32_t index, RunContext& context);
  void finish(std::uint32_t index);
  void complete_report();

  SumLayout layout_;
  SumCoder coder_;
  ScaleCache::Entry scales_;
  std::deque<Piece> pieces_;
  std::size_t done_ = 0;
  std::size_t open_sums_ = 0;
  base::Instant due_ = transport::kNever;
};

}  // namespace spillway::collective
