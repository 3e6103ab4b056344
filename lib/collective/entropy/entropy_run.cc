// SPDX-License-Identifier: Apache-2.0
#include "collective/entropy/entropy_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "codec/lanes.h"
#include "collective/entropy/sketch_content.h"
#include "packetize/packet_plan.h"

namespace spillway::collective {
namespace {

namespace entropy = codec::entropy;

std::uint8_t lead_priority(const Operation& operation) {
  return std::min<std::uint8_t>(operation.priority + 1, SPILLWAY_PRIORITIES - 1);
}

wire::MessageId rest_of(wire::MessageId lead) {
  lead.piece |= 1U;
  return lead;
}

bool is_rest(const wire::MessageId& id) {
  return (id.piece & 1U) != 0;
}

}  // namespace

EntropyRun::EntropyRun(const Operation& operation_, std::uint64_t key, const ChunkOptions& chunks,
                       const RunConfig& config, std::span<float> residual, CodeCache& cache,
                       CoderPool& coder_pool, const ByteLayout& layout)
    : PieceRun(operation_, key, config),
      chunks_(chunks),
      layout_(layout),
      code_cache_(cache),
      coder_pool_(coder_pool),
      tensor_{.operation = operation(),
              .group = config.group,
              .grid = grid_of(operation_, config.group.world),
              .residual = residual},
      hellos_(config.group.world),
      sent_hellos_(config.group.world),
      received_hellos_(config.group.world) {
  report_.algorithm =
      operation_.algorithm == Algorithm::kRing ? Algorithm::kRing : Algorithm::kDirect;
  last_ = code_cache_.last(tolerance().feedback_tensor, use());
  tensor_.draws = packetize::rotation_key(config.job, message_id(wire::Phase::kReduce, 0, rank()));
  const float predicted = last_ && tolerance().predicts_scale
                              ? codec::predict_scale(last_->largest, codec::kScaleHeadroom)
                              : 0.0F;
  rounds_early_ = predicted > 0.0F;
  tensor_.code = NumberCode(tolerance().precision, predicted);
  slices_.resize(piece_count(own_blocks().count, kSliceBlocks));
}

CodeUse EntropyRun::use() const {
  return {tolerance().codec, operation().count, tolerance().precision,
          algorithm(),       chunks_.rule,      operation().kind};
}

// The blocks that this rank has values of.
Extent EntropyRun::own_blocks() const {
  return has_contributions(operation()) ? Extent{0, tensor_.grid.blocks()}
                                        : tensor_.grid.blocks_of_part(rank());
}

std::size_t EntropyRun::sections_of(Codec codec) {
  return codec == Codec::kSketch ? kFoldSections : 1;
}

std::size_t EntropyRun::messages_of(const Operation& operation, const ChunkOptions& chunks) {
  // No section is longer than the tensor.
  const BlockGrid grid = grid_of(operation, chunks.chunks);
  const std::size_t pieces =
      sections_of(operation.tolerance->codec) * most_pieces_of_chunk(grid, chunks);
  return chunks.chunks * (2 + kPieceMessages * pieces);
}

base::Status EntropyRun::named(const base::Status& status, std::uint16_t from) const {
  if (status.ok()) {
    return {};
  }
  return {status.code(),
          fmt::format("operation {} ({}): an entropy-coded message of rank {} is of no use: {}",
                      report_.sequence, describe(operation()), from, status.message())};
}

// ------------------------------------------------------------------ start

base::Status EntropyRun::start(RunContext& context) {
  missing_hellos_ = world() - 1U;
  if (base::Status status = expect_hellos(context); !status.ok()) {
    return status;
  }
  unmeasured_ = slices_.size();
  for (std::uint32_t slice = 0; slice < slices_.size(); ++slice) {
    submit(slice, Work::kMeasure, context);
  }
  return {};
}

void EntropyRun::submit(std::uint32_t index, Work work, RunContext& context) {
  const bool decodes = work == Work::kTakeSum || work == Work::kUnfold;
  PieceRun::submit(index, work, decodes ? ComputeJob::Part::kDecode : ComputeJob::Part::kEncode,
                   context);
}

// A fault of a piece stays with it, because the error names the rank that sent the message.
base::Status EntropyRun::calculate(std::uint32_t index, Work work) {
  switch (work) {
    case Work::kMeasure:
      measure(slices_[index], index);
      break;
    case Work::kFold:
      content_->fold();
      break;
    case Work::kReduce:
      reduce(pieces_[index]);
      break;
    case Work::kTakeSum:
      take_sum(pieces_[index]);
      break;
    case Work::kUnfold:
      unfolded_ = content_->unfold();
      break;
  }
  return {};
}

// ------------------------------------------------------------------ messages

base::Status EntropyRun::begin_pieces(RunContext& context) {
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    if (base::Status status = expect_numbers(index, context); !status.ok()) {
      return status;
    }
  }
  if (content_->has_fold()) {
    submit(0, Work::kFold, context);
  } else {
    reduce_all(context);
  }
  return {};
}

void EntropyRun::reduce_all(RunContext& context) {
  progress_ = EntropyProgress::kReducing;
  for (const std::uint32_t index : order_of_pieces()) {
    if (!pieces_[index].numbers.route().only_receives) {
      reduce_if_possible(index, context);
    }
  }
}

base::Status EntropyRun::expect_numbers(std::uint32_t index, RunContext& context) {
  Piece& piece = pieces_[index];
  const EntropyRoute& route = piece.numbers.route();
  piece.missing = route.sources;
  for (const std::uint16_t from : route.sources) {
    IncomingCode& part =
        *piece.parts.emplace(from, std::make_unique<IncomingCode>(layout_)).first->second;
    if (base::Status status = expect(wire::Phase::kReduce, index, from, part, context);
        !status.ok()) {
      return status;
    }
  }
  if (route.has_sum() || !has_results(operation())) {
    return {};
  }
  piece.sum = std::make_unique<IncomingCode>(layout_);
  return expect(wire::Phase::kGather, index, route.result_from, *piece.sum, context);
}

// Chunks take turns, and every rank begins with a different one: first pieces that others wait for,
// last those that it only adds to.
std::vector<std::uint32_t> EntropyRun::order_of_pieces() const {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> turns;  // number of the piece, chunk
  for (const Piece& piece : pieces_) {
    const std::uint32_t chunk = piece.numbers.place().chunk;
    const std::uint32_t distance = algorithm() == Algorithm::kRing
                                       ? (rank() + world() - chunk) % world()
                                       : (chunk + world() - rank() - 1U) % world();
    turns.emplace_back(piece.numbers.place().number, distance);
  }
  std::vector<std::uint32_t> order(pieces_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return turns[a] < turns[b]; });
  return order;
}

base::Status EntropyRun::expect(wire::Phase phase, std::uint32_t index, std::uint16_t from,
                                IncomingCode& code, RunContext& context) {
  return messages_.expect(layout_.receive_options(message_id(phase, 2 * index, from), kLeadBytes,
                                                  lead_priority(operation()), code.lead()),
                          context);
}

base::Status EntropyRun::expect_rest(const wire::MessageId& lead, IncomingCode& code,
                                     bool& is_whole, RunContext& context) {
  const std::size_t values = pieces_[lead.piece / 2].numbers.place().values;
  const std::optional<std::size_t> length = code.length(entropy::max_message_bytes(values));
  if (!length) {
    return named({base::StatusCode::kMalformed, "it says that it is longer than it can be"},
                 lead.source);
  }
  const std::size_t rest = code.begin_rest(*length);
  is_whole = rest == 0;
  return is_whole ? base::Status()
                  : messages_.expect(layout_.receive_options(rest_of(lead), rest,
                                                             operation().priority, code.rest()),
                                     context);
}

base::Status EntropyRun::send(wire::Phase phase, std::uint32_t index, std::uint16_t to,
                              OutgoingCode& code, RunContext& context) {
  const wire::MessageId lead = message_id(phase, 2 * index, rank());
  transport::SendOptions options =
      layout_.send_options(lead, kLeadBytes, lead_priority(operation()), code.lead());
  options.to = to;
  base::Status status = messages_.send(options, context);
  if (!status.ok() || code.rest_bytes() == 0) {
    return status;
  }
  options =
      layout_.send_options(rest_of(lead), code.rest_bytes(), operation().priority, code.rest());
  options.to = to;
  return messages_.send(options, context);
}

base::Status EntropyRun::on_received(const transport::ReceiveReport& report, RunContext& context) {
  messages_.on_received(report);
  const wire::MessageId& id = report.id;
  report_.peers[id.source].add(report);
  if (id.phase == wire::Phase::kNote) {
    return on_hello(id.source, context);
  }
  bool is_whole = is_rest(id);
  if (!is_whole) {
    Piece& piece = pieces_[id.piece / 2];
    IncomingCode& code = id.phase == wire::Phase::kGather ? *piece.sum : *piece.parts.at(id.source);
    if (base::Status status = expect_rest(id, code, is_whole, context); !status.ok()) {
      return status;
    }
  }
  return is_whole ? on_whole(id, context) : base::Status();
}

base::Status EntropyRun::on_whole(const wire::MessageId& id, RunContext& context) {
  const std::uint32_t index = id.piece / 2;
  Piece& piece = pieces_[index];
  if (id.phase == wire::Phase::kReduce) {
    std::erase(piece.missing, id.source);
    piece.arrived.push_back(id.source);
    reduce_if_possible(index, context);
    return {};
  }
  if (piece.stage != EntropyStage::kGathering) {
    return named({base::StatusCode::kMismatch, "it is a sum that this rank's part is not in"},
                 id.source);
  }
  piece.stage = EntropyStage::kTaking;
  base::Status status = send_sum(index, piece.sum->take(), context);
  submit(index, Work::kTakeSum, context);
  return status;
}

base::Status EntropyRun::on_sent(const transport::SendReport& report, RunContext& /*context*/) {
  messages_.on_sent(report);
  const wire::MessageId& id = report.id;
  if (id.phase == wire::Phase::kNote) {
    count_sent(report, config_.layout.wire_bytes(kHelloBytes));
    return {};
  }
  const Piece& piece = pieces_[id.piece / 2];
  const OutgoingCode& code = id.phase == wire::Phase::kReduce ? *piece.sent_part : *piece.sent_sum;
  count_sent(report, layout_.wire_bytes(is_rest(id) ? code.rest_bytes() : kLeadBytes));
  return {};
}

// ------------------------------------------------------------------ pieces

void EntropyRun::reduce_if_possible(std::uint32_t index, RunContext& context) {
  Piece& piece = pieces_[index];
  if (progress_ == EntropyProgress::kFolding || piece.is_busy ||
      (piece.is_prepared && piece.arrived.empty())) {
    return;
  }
  piece.is_busy = true;
  piece.adding = std::exchange(piece.arrived, {});
  submit(index, Work::kReduce, context);
}

void EntropyRun::reduce(Piece& piece) {
  EntropyPiece& numbers = piece.numbers;
  if (!std::exchange(piece.is_prepared, true)) {
    numbers.prepare();
  }
  for (const std::uint16_t from : piece.adding) {
    piece.fault = {numbers.add_part(from, piece.parts.at(from)->bytes()), from};
    if (!piece.fault.first.ok()) {
      return;
    }
  }
  piece.added += piece.adding.size();
  piece.is_added = piece.added == numbers.route().sources.size();
  if (!piece.is_added) {
    return;
  }
  if (numbers.route().has_sum() && !has_results(operation())) {
    numbers.deliver();
    return;
  }
  base::Result<EncodedPart> encoded =
      numbers.route().has_sum() ? numbers.encode_sum() : numbers.encode_part();
  if (encoded.ok()) {
    piece.encoded = std::move(encoded).value();
  } else {
    piece.fault = {encoded.status(), rank()};
  }
}

base::Status EntropyRun::on_reduced(std::uint32_t index, RunContext& context) {
  Piece& piece = pieces_[index];
  const EntropyRoute& route = piece.numbers.route();
  piece.is_busy = false;
  if (!piece.fault.first.ok()) {
    return named(piece.fault.first, piece.fault.second);
  }
  for (const std::uint16_t from : std::exchange(piece.adding, {})) {
    piece.parts.erase(from);
  }
  if (!piece.is_added) {
    reduce_if_possible(index, context);
    return {};
  }
  if (!piece.encoded) {
    finish(piece, context);  // the owner's sum stays here
    return {};
  }
  count_encoded(piece, route.has_sum() ? coder_->ranks_in_sum() : route.sent_step);
  std::vector<std::uint8_t> bytes = std::move(piece.encoded->bytes);
  if (route.has_sum()) {
    base::Status status = send_sum(index, std::move(bytes), context);
    finish(piece, context);
    return status;
  }
  piece.sent_part = std::make_unique<OutgoingCode>(std::move(bytes), layout_);
  base::Status status = send(wire::Phase::kReduce, index, *route.to, *piece.sent_part, context);
  if (has_results(operation())) {
    piece.stage = EntropyStage::kGathering;
  } else {
    finish(piece, context);
  }
  return status;
}

void EntropyRun::count_encoded(const Piece& piece, std::uint16_t step) {
  report_.entropy.add({.ranks = step,
                       .values = content_->values_of(piece.numbers.place()),
                       .bytes = piece.encoded->bytes.size(),
                       .tables = piece.encoded->has_table ? 1U : 0U});
}

// Sends the sum to all that get it from this rank; there may be none.
base::Status EntropyRun::send_sum(std::uint32_t index, std::vector<std::uint8_t> bytes,
                                  RunContext& context) {
  Piece& piece = pieces_[index];
  piece.sent_sum = std::make_unique<OutgoingCode>(std::move(bytes), layout_);
  for (const std::uint16_t to : piece.numbers.route().result_to) {
    if (base::Status status = send(wire::Phase::kGather, index, to, *piece.sent_sum, context);
        !status.ok()) {
      return status;
    }
  }
  return {};
}

void EntropyRun::take_sum(Piece& piece) {
  piece.fault = {piece.numbers.take_sum(piece.sent_sum->message()),
                 piece.numbers.route().result_from};
}

void EntropyRun::finish(Piece& piece, RunContext& context) {
  piece.stage = EntropyStage::kDone;
  if (++done_ < pieces_.size()) {
    return;
  }
  if (content_->has_unfold()) {
    progress_ = EntropyProgress::kUnfolding;
    submit(0, Work::kUnfold, context);
  } else {
    conclude();
  }
}

base::Status EntropyRun::on_unfolded() {
  if (!unfolded_.ok()) {
    return {unfolded_.code(),
            fmt::format("operation {} ({}): the sums of all ranks: {}", report_.sequence,
                        describe(operation()), unfolded_.message())};
  }
  conclude();
  return {};
}

// All of it has ended here: what was learned becomes the next operation's codes.
void EntropyRun::conclude() {
  progress_ = EntropyProgress::kConcluded;
  report_.contributors = world();
  TensorCodes codes{.use = use(), .sequence = report_.sequence, .largest = agreement_.largest};
  content_->conclude(codes, report_.entropy);
  codes.costs.resize(coder_->counts_costs ? tensor_.grid.blocks() : 0);
  const bool has_costs =
      agreement_.sums == TableSource::kLast && last_->costs.size() == codes.costs.size();
  for (const Piece& piece : pieces_) {
    const EntropyPiece& numbers = piece.numbers;
    const EntropyRoute& route = numbers.route();
    const ChunkPiece& place = numbers.place();
    if (numbers.learned().sum) {
      codes.sums.emplace(LinkStep{place.chunk, coder_->ranks_in_sum(), place.number},
                         *numbers.learned().sum);
    }
    if (route.to) {
      codes.sent.emplace(LinkStep{*route.to, route.sent_step, place.number},
                         *numbers.learned().sent);
    }
    for (const auto& [from, table] : numbers.learned().received) {
      codes.received.emplace(LinkStep{from, route.received_step, place.number}, table);
    }
    for (std::size_t i = 0; i < numbers.costs().size(); ++i) {
      const std::size_t block = place.blocks.block(i);
      codes.costs[block] =
          has_costs ? next_cost(last_->costs[block], numbers.costs()[i]) : numbers.costs()[i];
    }
  }
  code_cache_.keep(tolerance().feedback_tensor, std::move(codes));
}

// ------------------------------------------------------------------ what happens

base::Status EntropyRun::calculated(std::uint32_t index, Work work, RunContext& context) {
  switch (work) {
    case Work::kMeasure:
      return --unmeasured_ == 0 ? send_hellos(context) : base::Status();
    case Work::kFold:
      reduce_all(context);
      return {};
    case Work::kReduce:
      return on_reduced(index, context);
    case Work::kUnfold:
      return on_unfolded();
    case Work::kTakeSum:
      break;
  }
  Piece& piece = pieces_[index];
  if (!piece.fault.first.ok()) {
    return named(piece.fault.first, piece.fault.second);
  }
  finish(piece, context);
  return {};
}

std::vector<std::uint16_t> EntropyRun::awaited() const {
  std::set<std::uint16_t> ranks;
  for (std::uint16_t peer = 0; peer < world() && progress_ == EntropyProgress::kAgreeing; ++peer) {
    if (peer != rank() && hellos_[peer].is_missing) {
      ranks.insert(peer);
    }
  }
  for (const Piece& piece : pieces_) {
    if (piece.stage == EntropyStage::kDone) {
      continue;
    }
    ranks.insert(piece.missing.begin(), piece.missing.end());
    if (has_results(operation()) && !piece.numbers.route().has_sum() &&
        piece.stage != EntropyStage::kTaking) {
      ranks.insert(piece.numbers.route().result_from);
    }
  }
  return {ranks.begin(), ranks.end()};
}

}  // namespace spillway::collective
