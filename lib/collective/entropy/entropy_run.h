// SPDX-License-Identifier: Apache-2.0
//
// An all-reduce of integers, entropy-coded without loss by tables that are not sent:
//
//   measure ─► hellos, all to all ─► round ─► parts, added up on the way ─► sums to everybody
//
// Values are rounded once, with one scale for all ranks, and whole numbers are added: no hop adds
// an error, and all ranks end with the same bits. Numbers of each link and step are coded by a
// table that both ends made from the last operation's (code_cache.h). Hellos tell the scale, and
// which ends do not have the same table (code_cache.h); a table is then sent along, once. Every
// message arrives whole.
//
// With a predicted scale (Tolerance::predicts_scale, and a named tensor that came before) values
// are rounded while they are measured, which saves a pass over them after the hellos.
//
// Chunks go directly to their owners or round a ring (chunk_layout.h). Pieces of all chunks are
// under way at once, and calculations run beside them. Pieces hold the tensor's numbers, or what a
// sketch makes of these, all at once (entropy_content.h):
//
//   ... ─► round and fold ─► parts, added up on the way ─► sums to everybody ─► unfold
//
// A reduce-scatter ends with the sums at their owners, and an all-gather begins with parts that
// nobody adds to. Chunk r is then rank r's part.
//
// Message numbers: those of entropy_piece.h; hellos are notes.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "collective/entropy/code_cache.h"
#include "collective/entropy/entropy_piece.h"
#include "collective/halves.h"
#include "collective/piece_run.h"

namespace spillway::collective {

// Progress of the whole run; a plain run folds and unfolds nothing.
enum class EntropyProgress : std::uint8_t {
  kAgreeing,   // values are measured, hellos are in flight
  kFolding,    // numbers become what travels
  kReducing,   // pieces are in flight
  kUnfolding,  // their sums become values
  kConcluded,
};

// Progress of a piece.
enum class EntropyStage : std::uint8_t {
  kReducing,   // this rank's part, and those that it adds, are in flight
  kGathering,  // the sum is in flight
  kTaking,     // the sum is here, and becomes values
  kDone,
};

enum class EntropyWork : std::uint8_t { kMeasure, kFold, kReduce, kTakeSum, kUnfold };

class EntropyRun final : public PieceRun<EntropyWork> {
 public:
  // `config`, `cache`, `coder_pool` and `layout` outlive the run. `residual`: of the tensor, for
  // error feedback; or empty. `layout`: of pieces; hellos have that of `config`.
  EntropyRun(const Operation& operation, std::uint64_t key, const ChunkOptions& chunks,
             const RunConfig& config, std::span<float> residual, CodeCache& cache,
             CoderPool& coder_pool, const ByteLayout& layout);

  // Most messages of a piece at a rank: an incoming lead, an outgoing lead and rest, in two phases.
  static constexpr std::size_t kPieceMessages = 6;
  // Kinds of pieces in a chunk.
  static std::size_t sections_of(Codec codec);
  // Messages that an operation of the group may have in the endpoint at one time.
  static std::size_t messages_of(const Operation& operation, const ChunkOptions& chunks);

  base::Status start(RunContext& context) override;
  base::Status on_received(const transport::ReceiveReport& report, RunContext& context) override;
  base::Status on_sent(const transport::SendReport& report, RunContext& context) override;

  bool is_done() const override { return progress_ == EntropyProgress::kConcluded; }

  std::size_t message_count() const override { return messages_of(operation(), chunks_); }
  std::vector<std::uint16_t> awaited() const override;

 private:
  static constexpr std::size_t kSliceBlocks = 64;
  using Work = EntropyWork;

  // A run of blocks that is measured in one go.
  struct Slice {
    Magnitudes magnitudes;
    std::size_t clipped = 0;
  };
  struct Hello {
    HelloBytes out{};
    HelloBytes in{};
    std::optional<ByteSource> source;
    std::optional<ByteSink> sink;
    bool is_missing = true;
  };
  struct Piece {
    Piece(const PieceCoder& coder, const ChunkPiece& place, EntropyRoute route, PieceTables tables)
        : numbers(coder, place, std::move(route), std::move(tables)) {}

    EntropyPiece numbers;
    EntropyStage stage = EntropyStage::kReducing;
    bool is_busy = false;  // a job of it is out
    // Touched by its job:
    bool is_prepared = false;
    bool is_added = false;  // all that it adds
    std::vector<std::uint16_t> adding;
    std::size_t added = 0;
    std::optional<EncodedPart> encoded;
    std::pair<base::Status, std::uint16_t> fault;  // and the rank that sent the message

    std::vector<std::uint16_t> missing;  // ranks whose parts have not come
    std::map<std::uint16_t, std::unique_ptr<IncomingCode>> parts;  // by rank, until added
    std::vector<std::uint16_t> arrived;  // ranks whose parts are whole, and not added yet
    std::unique_ptr<IncomingCode> sum;
    std::unique_ptr<OutgoingCode> sent_part;
    std::unique_ptr<OutgoingCode> sent_sum;
  };

  const Tolerance& tolerance() const { return *operation().tolerance; }
  std::uint16_t rank() const { return config_.group.rank; }
  std::uint16_t world() const { return config_.group.world; }
  Algorithm algorithm() const { return report_.algorithm; }
  CodeUse use() const;
  Extent own_blocks() const;
  base::Status named(const base::Status& status, std::uint16_t from) const;

  // `index`: of a slice where values are measured, of a piece where there are some.
  base::Status calculate(std::uint32_t index, Work work) override;
  base::Status calculated(std::uint32_t index, Work work, RunContext& context) override;
  void submit(std::uint32_t index, Work work, RunContext& context);
  // entropy_run_agreement.cc
  void measure(Slice& slice, std::uint32_t index);  // a job
  base::Status expect_hellos(RunContext& context);
  base::Status send_hellos(RunContext& context);
  base::Status on_hello(std::uint16_t from, RunContext& context);
  base::Status agree_if_complete(RunContext& context);
  std::unique_ptr<EntropyContent> make_content();
  void cut();
  using Table = codec::entropy::ProbabilityTable;
  PieceTables tables_of(const ChunkPiece& place, const EntropyRoute& route);
  std::optional<Table> table_of(TableSource source, const LinkTables& last, const LinkStep& link,
                                std::uint16_t sender, std::uint8_t section);
  const Table& parametric(std::uint16_t sender, std::uint16_t ranks);

  base::Status begin_pieces(RunContext& context);
  void reduce_all(RunContext& context);
  std::vector<std::uint32_t> order_of_pieces() const;
  base::Status expect_numbers(std::uint32_t index, RunContext& context);
  base::Status expect(wire::Phase phase, std::uint32_t index, std::uint16_t from,
                      IncomingCode& code, RunContext& context);
  base::Status expect_rest(const wire::MessageId& lead, IncomingCode& code, bool& is_whole,
                           RunContext& context);
  base::Status send(wire::Phase phase, std::uint32_t index, std::uint16_t to, OutgoingCode& code,
                    RunContext& context);
  base::Status on_whole(const wire::MessageId& id, RunContext& context);
  void reduce_if_possible(std::uint32_t index, RunContext& context);
  void reduce(Piece& piece);  // a job
  base::Status on_reduced(std::uint32_t index, RunContext& context);
  base::Status send_sum(std::uint32_t index, std::vector<std::uint8_t> bytes, RunContext& context);
  void take_sum(Piece& piece);  // a job
  void count_encoded(const Piece& piece, std::uint16_t step);
  void finish(Piece& piece, RunContext& context);
  base::Status on_unfolded();
  void conclude();

  ChunkOptions chunks_;
  const ByteLayout& layout_;  // of pieces
  CodeCache& code_cache_;
  CoderPool& coder_pool_;
  std::shared_ptr<const TensorCodes> last_;
  TensorNumbers tensor_;
  bool rounds_early_ = false;

  std::vector<Slice> slices_;
  std::size_t unmeasured_ = 0;
  std::vector<Hello> hellos_;  // by rank
  std::vector<EntropyHello> sent_hellos_;
  std::vector<EntropyHello> received_hellos_;
  std::size_t missing_hellos_ = 0;
  EntropyAgreement agreement_;
  EntropyProgress progress_ = EntropyProgress::kAgreeing;
  std::unique_ptr<EntropyContent> content_;  // once ranks have agreed
  std::optional<PieceCoder> coder_;
  std::map<std::pair<std::uint16_t, std::uint16_t>, Table> parametric_;  // by sender and ranks

  std::deque<Piece> pieces_;
  std::size_t done_ = 0;
  base::Status unfolded_;  // touched by its job
};

}  // namespace spillway::collective
