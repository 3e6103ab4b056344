// SPDX-License-Identifier: Apache-2.0
#include "collective/summed/summed_run.h"

#include <algorithm>
#include <utility>

#include "codec/lanes.h"
#include "packetize/packet_plan.h"

namespace spillway::collective {
namespace {

// How long an operation waits before it looks again for the last one's measures.
constexpr base::Duration kLookAgain = base::microseconds(200);
// Urgency has 8 bits: every priority leaves room above it for ageing.
constexpr std::uint8_t kUrgencyPerPriority = 31;

std::uint8_t urgency_of(const Operation& operation) {
  return operation.urgency.value_or(
      static_cast<std::uint8_t>((operation.priority + 1) * kUrgencyPerPriority));
}

std::span<std::uint8_t> bytes_of(std::span<float> values) {
  return {reinterpret_cast<std::uint8_t*>(values.data()), values.size_bytes()};
}

}  // namespace

SummedRun::SummedRun(const Operation& operation_, std::uint64_t key, SumLayout layout,
                     const RunConfig& config, std::span<float> residual,
                     const ScaleCache::Entry& scales)
    : PieceRun(operation_, key, config),
      layout_(std::move(layout)),
      coder_(operation(), layout_, residual),
      scales_(scales) {
  report_.algorithm = Algorithm::kSwitch;
  const Group& group = config_.group;
  for (std::uint32_t index = 0; index < layout_.places.size(); ++index) {
    const SumPlace& place = layout_.places[index];
    // The key is not of a rank's own message, so that all ranks rotate alike.
    const std::uint64_t rotations =
        packetize::rotation_key(config_.job, message_id(wire::Phase::kNote, index, place.owner));
    Piece& piece = pieces_.emplace_back(coder_, place, rotations);
    if (is_mine(piece)) {
      piece.unmeasured = layout_.contributors_to(place);
      piece.measures.resize(group.world);
      piece.sinks.resize(group.world);
    }
    if (is_server()) {
      piece.stage = is_mine(piece) ? PieceStage::kAgreeing : PieceStage::kDone;
      done_ += is_mine(piece) ? 0 : 1;
    }
  }
  scales_.own->largest.resize(pieces_.size());
}

transport::SumId SummedRun::sum_id(std::uint32_t index) const {
  return {.operation = report_.sequence,
          .signature = signature(),
          .piece = static_cast<std::uint16_t>(index),
          .owner = pieces_[index].numbers.place().owner};
}

// ------------------------------------------------------------------ start

base::Status SummedRun::start(RunContext& context) {
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    if (base::Status status = expect_measures(index, context); !status.ok()) {
      return status;
    }
    Piece& piece = pieces_[index];
    if (piece.stage == PieceStage::kMeasuring) {
      submit(index, Work::kMeasure, context);
    } else if (piece.stage == PieceStage::kAgreeing) {
      piece.numbers.begin_empty();
      if (base::Status status = begin_sum(index, context); !status.ok()) {
        return status;
      }
    }
  }
  return {};
}

base::Status SummedRun::calculate(std::uint32_t index, Work work) {
  Piece& piece = pieces_[index];
  switch (work) {
    case Work::kMeasure:
      return piece.numbers.measure();
    case Work::kEncode:
      return piece.numbers.encode(piece.scales);
    case Work::kDecode:
      return piece.numbers.decode(piece.shared);
  }
  return {};
}

void SummedRun::submit(std::uint32_t index, Work work, RunContext& context) {
  const bool decodes = work == Work::kDecode;
  PieceRun::submit(index, work, decodes ? ComputeJob::Part::kDecode : ComputeJob::Part::kEncode,
                   context);
}

// An owner expects the measures of all other ranks; these expect the largest of them.
base::Status SummedRun::expect_measures(std::uint32_t index, RunContext& context) {
  Piece& piece = pieces_[index];
  const std::size_t rows = piece.numbers.row_count();
  base::Status status;
  const auto expect = [&](const wire::MessageId& id, std::vector<float>& into,
                          std::unique_ptr<ByteSink>& sink) {
    into.resize(rows);
    const std::span<std::uint8_t> bytes = bytes_of(into);
    sink = std::make_unique<ByteSink>(bytes.data(), bytes.size(), config_.layout);
    if (status.ok()) {
      status = messages_.expect(
          config_.layout.receive_options(id, bytes.size(), operation().priority, *sink), context);
    }
  };
  if (is_mine(piece)) {
    piece.unmeasured.for_each([&](std::uint16_t rank) {
      expect(message_id(wire::Phase::kReduce, index, rank), piece.measures[rank],
             piece.sinks[rank]);
    });
  } else if (!is_server()) {
    expect(message_id(wire::Phase::kGather, index, piece.numbers.place().owner), piece.shared,
           piece.sinks.emplace_back());
  }
  return status;
}

base::Status SummedRun::send_floats(const wire::MessageId& id, std::uint16_t to,
                                    std::span<const float> values, Piece& piece,
                                    RunContext& context) {
  ByteSource& source = *piece.sources.emplace_back(std::make_unique<ByteSource>(
      reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes(), config_.layout));
  transport::SendOptions options =
      config_.layout.send_options(id, values.size_bytes(), operation().priority, source);
  options.to = to;
  return messages_.send(options, context);
}

// ------------------------------------------------------------------ the scale

base::Status SummedRun::on_measured(std::uint32_t index, RunContext& context) {
  Piece& piece = pieces_[index];
  piece.stage = PieceStage::kAgreeing;
  encode_if_possible(index, context);
  if (is_mine(piece)) {
    fold(piece, piece.numbers.measures());
    return agree_if_complete(index, context);
  }
  return send_floats(message_id(wire::Phase::kReduce, index, config_.group.rank),
                     piece.numbers.place().owner, piece.numbers.measures(), piece, context);
}

void SummedRun::fold(Piece& piece, std::span<const float> measures) {
  piece.shared.resize(measures.size());
  for (std::size_t row = 0; row < measures.size(); ++row) {
    piece.shared[row] = codec::larger_scale(piece.shared[row], measures[row]);
  }
}

// At the owner, once its own measures are in and all those that are waited for.
base::Status SummedRun::agree_if_complete(std::uint32_t index, RunContext& context) {
  Piece& piece = pieces_[index];
  const bool has_own = is_server() || piece.stage != PieceStage::kMeasuring;
  if (piece.is_agreed || !has_own || !piece.unmeasured.empty()) {
    return {};
  }
  piece.shared.resize(piece.numbers.row_count());  // zeros if no rank measured
  base::Status status;
  layout_.contributors_to(piece.numbers.place()).for_each([&](std::uint16_t rank) {
    if (status.ok()) {
      status = send_floats(message_id(wire::Phase::kGather, index, config_.group.rank), rank,
                           piece.shared, piece, context);
    }
  });
  return status.ok() ? on_agreed(index, context) : status;
}

base::Status SummedRun::on_agreed(std::uint32_t index, RunContext& context) {
  Piece& piece = pieces_[index];
  piece.is_agreed = true;
  scales_.own->largest[index] = piece.shared;
  ++scales_.own->known;
  encode_if_possible(index, context);
  decode_if_possible(index, context);
  return {};
}

// True if the last operation's measures give every row of the piece a scale, or may once they are
// there.
bool SummedRun::predicts(std::uint32_t index) const {
  if (!tolerance().predicts_scale || !scales_.last ||
      scales_.last->largest.size() != pieces_.size()) {
    return false;
  }
  const std::vector<float>& last = scales_.last->largest[index];
  return !scales_.last->is_complete() ||
         (last.size() == pieces_[index].numbers.row_count() &&
          std::all_of(last.begin(), last.end(), [](float largest) {
            return codec::predict_scale(largest, codec::kScaleHeadroom) > 0.0F;
          }));
}

// Encodes by the prediction, or without one by what was agreed. Either may come first, and which
// one applies may only be known once all measures of the last operation are there.
void SummedRun::encode_if_possible(std::uint32_t index, RunContext& context) {
  Piece& piece = pieces_[index];
  if (piece.stage != PieceStage::kAgreeing || is_server()) {
    return;
  }
  if (!predicts(index)) {
    if (piece.is_agreed) {
      encode(index, piece.shared, context);
    }
    return;
  }
  if (!scales_.last->is_complete()) {
    due_ = std::min(due_, context.now + kLookAgain);
    return;
  }
  std::vector<float> scales = scales_.last->largest[index];
  for (float& scale : scales) {
    scale = codec::predict_scale(scale, codec::kScaleHeadroom);
  }
  encode(index, scales, context);
}

void SummedRun::encode(std::uint32_t index, std::span<const float> scales, RunContext& context) {
  Piece& piece = pieces_[index];
  piece.scales.assign(scales.begin(), scales.end());
  piece.stage = PieceStage::kEncoding;
  submit(index, Work::kEncode, context);
}

// ------------------------------------------------------------------ the sum

base::Status SummedRun::begin_sum(std::uint32_t index, RunContext& context) {
  Piece& piece = pieces_[index];
  const SumPlace& place = piece.numbers.place();
  const wire::RankSet others = layout_.contributors_to(place);
  if (!is_server()) {
    piece.stage = PieceStage::kSumming;
  }
  transport::SumOptions options{.id = sum_id(index),
                                .contributors = others,
                                .recipients = others,
                                .owner_contributes = !is_server(),
                                .need = layout_.need_of(place, config_.group.rank),
                                .priority = operation().priority,
                                .urgency = urgency_of(operation()),
                                .loss_bound_ppm = tolerance().loss_bound_ppm,
                                .words = piece.numbers.words(),
                                .ranks = piece.numbers.ranks()};
  base::Status status = context.endpoint.begin_sum(options, context.now);
  if (status.ok()) {
    piece.is_open = true;
    ++open_sums_;
  }
  return status;
}

base::Status SummedRun::on_summed(const transport::SumReport& report, RunContext& context) {
  const std::uint32_t index = report.id.piece;
  Piece& piece = pieces_[index];
  const bool is_over = report.stage == transport::SumStage::kOver;
  const bool is_formed = !is_over || !is_mine(piece);
  if (is_over) {
    piece.is_open = false;
    --open_sums_;
    report_.packets_sent += report.sent;
    report_.packets_repeated += report.retransmitted;
    report_.wire_bytes_sent += report.sent * SPILLWAY_SUM_PACKET;
  }
  if (is_formed && piece.stage != PieceStage::kDone) {
    if (is_mine(piece)) {
      count_parts(piece, report);
    }
    piece.stage = PieceStage::kDecoding;
    decode_if_possible(index, context);
  }
  return {};
}

// At the owner: counts what came from which rank, and how.
void SummedRun::count_parts(const Piece& piece, const transport::SumReport& report) {
  layout_.contributors_to(piece.numbers.place()).for_each([&](std::uint16_t rank) {
    const std::uint64_t missing = rank < report.missing.size() ? report.missing[rank] : 0;
    report_.peers[rank].packets += report.chunks;
    report_.peers[rank].missing += missing;
    report_.peers[rank].whole += report.chunks - missing;
  });
  report_.sums.added += report.added;
  report_.sums.alone += report.alone;
  report_.sums.flushed += report.flushed;
}

void SummedRun::decode_if_possible(std::uint32_t index, RunContext& context) {
  Piece& piece = pieces_[index];
  if (piece.stage != PieceStage::kDecoding || !piece.is_agreed) {
    return;
  }
  if (is_server()) {
    finish(index);
  } else {
    submit(index, Work::kDecode, context);
  }
}

void SummedRun::finish(std::uint32_t index) {
  pieces_[index].stage = PieceStage::kDone;
  if (++done_ == pieces_.size()) {
    complete_report();
  }
}

void SummedRun::complete_report() {
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    Piece& piece = pieces_[index];
    if (is_server() && !is_mine(piece)) {
      continue;
    }
    report_.sums.clipped += piece.numbers.clipped();
    const SumPlace& place = piece.numbers.place();
    if (report_.shards.empty() || report_.shards.back().owner != place.owner) {
      report_.shards.push_back({static_cast<std::uint16_t>(report_.shards.size()),
                                place.owner,
                                {place.extent.first, 0},
                                SPILLWAY_SUM_RANKS});
    }
    ShardDelivery& shard = report_.shards.back();
    shard.extent.count += place.extent.count;
    shard.contributors = std::min(shard.contributors,
                                  static_cast<std::uint16_t>(piece.numbers.fewest_contributors()));
  }
  report_.count_contributors();
}

// ------------------------------------------------------------------ what happens

base::Status SummedRun::on_received(const transport::ReceiveReport& report, RunContext& context) {
  messages_.on_received(report);
  const std::uint32_t index = report.id.piece;
  Piece& piece = pieces_[index];
  if (!is_mine(piece)) {
    return on_agreed(index, context);
  }
  const std::uint16_t rank = report.id.source;
  if (piece.unmeasured.contains(rank)) {
    piece.unmeasured.erase(rank);
    fold(piece, piece.measures[rank]);
  }
  return agree_if_complete(index, context);
}

base::Status SummedRun::on_sent(const transport::SendReport& report, RunContext& /*context*/) {
  messages_.on_sent(report);
  return {};
}

base::Status SummedRun::calculated(std::uint32_t index, Work work, RunContext& context) {
  switch (work) {
    case Work::kMeasure:
      return on_measured(index, context);
    case Work::kEncode:
      return begin_sum(index, context);
    case Work::kDecode:
      finish(index);
      break;
  }
  return {};
}

base::Status SummedRun::on_timeout(RunContext& context) {
  due_ = transport::kNever;
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    encode_if_possible(index, context);
  }
  return {};
}

void SummedRun::withdraw(RunContext& context) {
  PieceRun::withdraw(context);
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    if (std::exchange(pieces_[index].is_open, false)) {
      context.endpoint.withdraw_sum(sum_id(index));
      --open_sums_;
    }
  }
}

// ------------------------------------------------------------------ for the engine

std::size_t SummedRun::message_count() const {
  std::size_t messages = 0;
  for (const Piece& piece : pieces_) {
    const std::size_t others = layout_.contributors_to(piece.numbers.place()).size();
    messages += is_mine(piece) ? 2 * others : is_server() ? 0 : 2;
  }
  return messages;
}

// Once it has its sum and all measures, a piece needs only this rank's own calculation.
wire::RankSet SummedRun::awaited_by(const Piece& piece) const {
  const bool has_sum = piece.stage == PieceStage::kDecoding;
  if (piece.stage == PieceStage::kDone || (has_sum && piece.is_agreed)) {
    return {};
  }
  if (!is_mine(piece)) {
    return wire::RankSet::of(piece.numbers.place().owner);
  }
  return has_sum || !piece.unmeasured.empty() ? piece.unmeasured
                                              : layout_.contributors_to(piece.numbers.place());
}

std::vector<std::uint16_t> SummedRun::awaited() const {
  wire::RankSet ranks;
  for (const Piece& piece : pieces_) {
    ranks = ranks | awaited_by(piece);
  }
  std::vector<std::uint16_t> list;
  ranks.for_each([&](std::uint16_t rank) { list.push_back(rank); });
  return list;
}

// The peer has all results, whether or not it could say so.
void SummedRun::on_left(std::uint16_t peer, RunContext& context) {
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    if (pieces_[index].is_open && is_mine(pieces_[index])) {
      context.endpoint.finish_sum_for(sum_id(index), peer);
    }
  }
}

}  // namespace spillway::collective
