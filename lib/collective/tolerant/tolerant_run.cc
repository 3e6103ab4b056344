// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant/tolerant_run.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "collective/device_tensor.h"
#include "collective/tolerant/error_feedback.h"

namespace spillway::collective {
namespace {

// Long enough to read what others have said already.
constexpr base::Duration kReadingTime = base::microseconds(300);

}  // namespace

TolerantRun::TolerantRun(const Operation& operation, std::uint64_t key, TolerantLayout layout,
                         std::size_t window, const RunConfig& config, Pace& pace,
                         std::span<float> residual)
    : PieceRun(operation, key, config),
      layout_(std::move(layout)),
      window_(has_deadlines() ? layout_.pieces.size() : window),
      pace_(pace),
      piece_context_{this->operation(), config, residual} {
  const Group& group = config.group;
  for (const TolerantPiece& place : layout_.pieces) {
    const PieceState& piece = pieces_.emplace_back(place, group, operation.kind);
    collecting_.pieces += is_mine(piece) ? 1 : 0;
    settled_ += piece.is_settled() ? 1 : 0;
  }
  if (has_deadlines() && group.servers == 0) {
    notes_ = std::make_unique<AgreementNotes>(message_id(AgreementNotes::kPhase, 0, 0),
                                              least_ranks(group.world), config, messages_);
  }
  report_.algorithm = group.servers > 0 ? Algorithm::kServers : Algorithm::kDirect;
  report_.contributors = group.workers();
  was_on_time_.resize(group.world);
  pace_.is_straggler.resize(group.world);
}

base::Status TolerantRun::calculate(std::uint32_t index, Work work) {
  PieceState& piece = pieces_[index];
  const std::uint16_t rank = config_.group.rank;
  const wire::MessageId contribution = message_id(wire::Phase::kReduce, index, rank);
  switch (work) {
    case Work::kEncode:
      return encode_contribution(piece_context_, contribution, piece);
    case Work::kAddUp: {
      const wire::MessageId result = message_id(wire::Phase::kGather, index, rank);
      return has_contributions(operation()) ? add_up_contributions(piece_context_, result, piece)
                                            : encode_own_part(piece_context_, result, piece);
    }
    case Work::kDecode:
      return decode_sum(piece_context_, piece);
    case Work::kSettle:
      return settle_contribution(piece_context_, contribution, piece);
    case Work::kKeep:
      keep_input(piece_context_, piece);
      break;
  }
  return {};
}

// ------------------------------------------------------------------ messages

transport::LossPolicy TolerantRun::reduce_loss() const {
  return {.loss_bound_ppm = tolerance().loss_bound_ppm, .min_planes = tolerance().min_planes};
}

transport::LossPolicy TolerantRun::gather_loss() const {
  return {.loss_bound_ppm = 0, .min_planes = tolerance().gather_precision};
}

// For packets that are not ranked one by one. Messages that must come whole are never dropped
// first.
std::uint8_t TolerantRun::importance_of(const transport::LossPolicy& loss) const {
  return loss.loss_bound_ppm > 0 ? tolerance().importance.value_or(SPILLWAY_IMPORTANCE_MARKED)
                                 : SPILLWAY_IMPORTANCE_MARKED;
}

base::Status TolerantRun::expect_planes(const wire::MessageId& id,
                                        const packetize::PacketPlan& plan,
                                        const transport::LossPolicy& loss,
                                        transport::PayloadSink& sink, RunContext& context) {
  transport::ReceiveOptions options;
  options.id = id;
  options.packets = static_cast<std::uint32_t>(plan.packet_count());
  options.packet_bytes = static_cast<std::uint32_t>(plan.max_packet_size());
  options.planes = static_cast<std::uint8_t>(plan.planes());
  options.priority = operation().priority;
  options.loss = loss;
  options.sink = &sink;
  options.carrier = layout_.carrier;
  return messages_.expect(options, context);
}

base::Status TolerantRun::send_planes(const wire::MessageId& id, std::uint16_t to,
                                      PlaneSource& source, const transport::LossPolicy& loss,
                                      RunContext& context) {
  transport::SendOptions options;
  options.id = id;
  options.to = to;
  options.packets = static_cast<std::uint32_t>(source.plan().packet_count());
  options.packet_bytes = static_cast<std::uint32_t>(source.plan().max_packet_size());
  options.priority = operation().priority;
  options.importance = importance_of(loss);
  options.packet_importance = source.packet_importance();
  options.loss = loss;
  options.source = &source;
  options.carrier = layout_.carrier;
  return messages_.send(options, context);
}

// ------------------------------------------------------------------ steps

// Pieces of a shard are adjacent.
bool TolerantRun::is_beyond_window(std::uint32_t index) const {
  return index >= window_ && pieces_[index - window_].place.shard == pieces_[index].place.shard;
}

base::Status TolerantRun::expect_first(RunContext& context) {
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    if (is_beyond_window(index)) {
      continue;
    }
    if (base::Status status = expect_piece(index, context); !status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status TolerantRun::expect_piece(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  piece.has_begun = true;
  if (piece.sum_state == SumState::kCollecting) {
    return expect_contributions(index, context);
  }
  if (piece.sum_state == SumState::kAwaited) {
    if (base::Status status = expect_sum(index, context); !status.ok()) {
      return status;
    }
  }
  if (piece.contribution_state == ContributionState::kNone || piece.is_dropped()) {
    return {};
  }
  piece.contribution = std::make_unique<PlaneSource>(layout_.reduce_plan(piece.place).value());
  return expects_receipts() ? expect_receipt(index, context) : base::Status();
}

bool TolerantRun::has_ended(std::uint32_t index) const {
  const PieceState& piece = pieces_[index];
  const bool is_receipt_settled =
      piece.receipt_state == ReceiptState::kNone || piece.receipt_state == ReceiptState::kSettled;
  return piece.is_settled() && is_receipt_settled &&
         messages_.count(wire::Phase::kReduce, index) == 0 &&
         messages_.count(wire::Phase::kGather, index) == 0 &&
         messages_.count(AgreementNotes::kPhase, kFirstReceipt + index) == 0;
}

// If this piece has ended, frees what it held and begins the piece that waits for it.
base::Status TolerantRun::begin_next(std::uint32_t ended, RunContext& context) {
  const std::size_t next = ended + window_;
  if (next >= pieces_.size() || !is_beyond_window(static_cast<std::uint32_t>(next)) ||
      pieces_[next].has_begun || !has_ended(ended)) {
    return {};
  }
  PieceState& piece = pieces_[ended];
  piece.contribution.reset();
  piece.contributions.clear();
  piece.result.reset();
  piece.receipts_on_their_way.clear();
  piece.receipts.clear();
  const auto index = static_cast<std::uint32_t>(next);
  if (base::Status status = expect_piece(index, context); !status.ok()) {
    return status;
  }
  encode(index, context);
  return {};
}

// If a device decodes, planes are kept for it.
base::Result<std::unique_ptr<PlaneSink>> TolerantRun::make_sink(const wire::MessageId& id,
                                                                const packetize::PacketPlan& plan) {
  if (!operation().device) {
    return std::make_unique<PlaneSink>(plan, config_.job, id);
  }
  base::Result<packetize::KeptPlanes> kept = operation().device->make_planes(plan);
  if (!kept.ok()) {
    return kept.status();
  }
  return std::make_unique<PlaneSink>(plan, config_.job, id, std::move(kept).value());
}

base::Status TolerantRun::expect_contributions(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  const packetize::PacketPlan reduce = layout_.reduce_plan(piece.place).value();
  piece.result = std::make_unique<PlaneSource>(layout_.gather_plan(piece.place).value());
  piece.contributions.resize(config_.group.workers());
  piece.was_cut.resize(config_.group.workers(), false);
  for (std::uint16_t from = 0; from < config_.group.workers() && has_contributions(operation());
       ++from) {
    if (from == config_.group.rank) {
      ++piece.on_time;
      continue;
    }
    const wire::MessageId id = message_id(wire::Phase::kReduce, index, from);
    base::Result<std::unique_ptr<PlaneSink>> sink = make_sink(id, reduce);
    if (!sink.ok()) {
      return sink.status();
    }
    piece.contributions[from] = std::move(sink).value();
    ++piece.open_contributions;
    if (base::Status status =
            expect_planes(id, reduce, reduce_loss(), *piece.contributions[from], context);
        !status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status TolerantRun::expect_sum(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  const packetize::PacketPlan gather = layout_.gather_plan(piece.place).value();
  const wire::MessageId id = message_id(wire::Phase::kGather, index, piece.place.owner);
  base::Result<std::unique_ptr<PlaneSink>> sink = make_sink(id, gather);
  if (!sink.ok()) {
    return sink.status();
  }
  piece.sum = std::move(sink).value();
  return expect_planes(id, gather, gather_loss(), *piece.sum, context);
}

base::Status TolerantRun::start(RunContext& context) {
  if (base::Status status = expect_first(context); !status.ok()) {
    return status;
  }
  if (agrees()) {
    if (base::Status status = notes_->start(context); !status.ok()) {
      return status;
    }
  }
  if (const std::optional<base::Duration> usual = pace_.reduce.deadline();
      usual && has_deadlines()) {
    collecting_.deadline = deadlines_.collect = context.now + *usual;
  }
  if (agrees() && pace_.was_left_behind) {
    // The others may have decided long ago. Then there is nothing to contribute, and time to catch
    // up: this rank reads first what they said.
    phase_.enter(RunPhase::kHoldingBack);
    deadlines_.contribute = context.now + kReadingTime;
  } else {
    contribute(context);
  }
  if (collecting_.pieces == 0) {
    end_collecting(context.now);
  }
  return advance(context);  // a server may have nothing to do
}

// Every rank begins with another owner, so that not all send to one at once. Ranks that own shards
// themselves send one shard after the other: their links are full both ways all the time. Servers
// get the same pieces from all workers at the same time, so that sums travel back while later
// pieces come.
std::vector<std::uint32_t> TolerantRun::order_of_contributions() const {
  std::vector<std::uint32_t> order(pieces_.size());
  std::iota(order.begin(), order.end(), 0U);
  if (config_.group.servers == 0) {
    const std::size_t first = order.size() * (config_.group.rank + 1U) / config_.group.world;
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(first), order.end());
    return order;
  }
  std::vector<std::uint32_t> place_in_shard(pieces_.size());
  for (std::size_t index = 1; index < pieces_.size(); ++index) {
    const bool goes_on = pieces_[index].place.shard == pieces_[index - 1].place.shard;
    place_in_shard[index] = goes_on ? place_in_shard[index - 1] + 1 : 0;
  }
  const auto turn_of = [this](std::uint32_t index) {
    return (pieces_[index].place.shard + config_.group.rank) % config_.group.servers;
  };
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return place_in_shard[a] != place_in_shard[b] ? place_in_shard[a] < place_in_shard[b]
                                                  : turn_of(a) < turn_of(b);
  });
  return order;
}

void TolerantRun::contribute(RunContext& context) {
  phase_.enter(RunPhase::kExchanging);
  deadlines_.contribute = transport::kNever;
  for (const std::uint32_t index : order_of_contributions()) {
    if (pieces_[index].has_begun) {
      encode(index, context);
    }
  }
}

void TolerantRun::encode(std::uint32_t index, RunContext& context) {
  if (pieces_[index].contribution_state == ContributionState::kWaiting) {
    pieces_[index].contribution_state.enter(ContributionState::kEncoding);
    submit(index, Work::kEncode, context);
  }
  add_up_if_complete(index, context);  // in an all-gather: no contributions come
}

void TolerantRun::submit(std::uint32_t index, Work work, RunContext& context) {
  const bool encodes = work == Work::kEncode;
  PieceRun::submit(index, work, encodes ? ComputeJob::Part::kEncode : ComputeJob::Part::kDecode,
                   context);
}

base::Status TolerantRun::calculated(std::uint32_t index, Work work, RunContext& context) {
  base::Status status;
  switch (work) {
    case Work::kEncode:
      status = on_encoded(index, context);
      break;
    case Work::kAddUp:
      status = on_sum(index, context);
      break;
    case Work::kDecode:
      on_decoded(pieces_[index]);
      break;
    case Work::kSettle:
      close_receipt(pieces_[index]);
      break;
    case Work::kKeep:
      on_kept(index, context);
      break;
  }
  if (status.ok()) {
    status = begin_next(index, context);
  }
  if (!status.ok()) {
    return status;
  }
  become_ready_if_complete(context.now);
  return advance(context);
}

base::Status TolerantRun::on_encoded(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  if (piece.is_dropped()) {
    piece.contribution_state.enter(ContributionState::kSkipped);
    return {};
  }
  piece.contribution_state.enter(ContributionState::kSent);
  const wire::MessageId id = message_id(wire::Phase::kReduce, index, config_.group.rank);
  if (base::Status status =
          send_planes(id, piece.place.owner, *piece.contribution, reduce_loss(), context);
      !status.ok()) {
    return status;
  }
  settled_ += piece.is_settled() ? 1 : 0;  // in a reduce-scatter: no sum comes
  decode_if_possible(index, context);
  settle_receipt_if_possible(index, context);
  return {};
}

void TolerantRun::on_decoded(PieceState& piece) {
  piece.sum.reset();
  if (!piece.is_dropped()) {
    settle(piece, SumState::kHeld);
  }
}

// The piece's sum is in the output, or will not count.
void TolerantRun::settle(PieceState& piece, SumState state) {
  settled_ += piece.is_settled() ? 0 : 1;
  piece.sum_state.enter(state);
}

base::Status TolerantRun::on_sum(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  if (++collecting_.sums == collecting_.pieces) {
    if (!collecting_.is_cut_short) {
      pace_.reduce.add(context.now - report_.started);
    } else if (collecting_.last_contribution) {
      pace_.reduce.add(*collecting_.last_contribution - report_.started);
    }
    end_collecting(context.now);
  }
  if (piece.is_dropped()) {
    return {};
  }
  settle(piece, SumState::kHeld);
  if (base::Status status = send_receipts(index, context); !status.ok()) {
    return status;
  }
  const wire::MessageId id = message_id(wire::Phase::kGather, index, config_.group.rank);
  for (unsigned distance = 1; distance < config_.group.world && has_results(operation());
       ++distance) {
    const auto to =
        static_cast<std::uint16_t>((config_.group.rank + distance) % config_.group.world);
    if (to >= config_.group.workers()) {
      continue;
    }
    if (base::Status status = send_planes(id, to, *piece.result, gather_loss(), context);
        !status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status TolerantRun::on_received(const transport::ReceiveReport& report, RunContext& context) {
  messages_.on_received(report);
  if (is_withdrawn()) {
    return {};
  }
  switch (report.id.phase) {
    case wire::Phase::kReduce:
      on_contribution(report, context);
      break;
    case wire::Phase::kGather: {
      report_.peers[report.id.source].add(report);
      was_on_time_[report.id.source] = true;
      if (PieceState& piece = pieces_[report.id.piece]; piece.sum_state == SumState::kAwaited) {
        piece.sum_state.enter(SumState::kReceived);
        decode_if_possible(report.id.piece, context);
      }
      break;
    }
    default:
      if (is_receipt(report.id)) {
        on_receipt(report.id.piece - kFirstReceipt, context);
      } else {
        notes_->on_received(report);
      }
  }
  return after_message(report.id, context);
}

base::Status TolerantRun::after_message(const wire::MessageId& id, RunContext& context) {
  const bool is_note = id.phase == AgreementNotes::kPhase && !is_receipt(id);
  if (!is_note) {
    const std::uint32_t index = is_receipt(id) ? id.piece - kFirstReceipt : id.piece;
    if (base::Status status = begin_next(index, context); !status.ok()) {
      return status;
    }
  }
  return advance(context);
}

void TolerantRun::on_contribution(const transport::ReceiveReport& report, RunContext& context) {
  const bool is_cut = report.outcome == transport::Outcome::kCancelled;
  PeerDelivery& from = report_.peers[report.id.source];
  from.add(report);
  from.late = from.late || is_cut;
  PieceState& piece = pieces_[report.id.piece];
  --piece.open_contributions;
  piece.was_cut[report.id.source] = is_cut;
  if (report.delivered > 0) {
    was_on_time_[report.id.source] = true;
  }
  if (!is_cut) {
    ++piece.on_time;
    collecting_.last_contribution = context.now;
  }
  if (collecting_.is_overdue || waits_for_stragglers_only(piece)) {
    stop_collecting(context);  // perhaps enough have come by now
  }
  add_up_if_complete(report.id.piece, context);
}

void TolerantRun::add_up_if_complete(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  if (piece.open_contributions == 0 && piece.sum_state == SumState::kCollecting) {
    piece.sum_state.enter(SumState::kAddingUp);
    submit(index, Work::kAddUp, context);
  }
}

void TolerantRun::decode_if_possible(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  if (piece.sum_state == SumState::kReceived && piece.has_contributed()) {
    piece.sum_state.enter(SumState::kDecoding);
    submit(index, Work::kDecode, context);
  }
}

base::Status TolerantRun::on_sent(const transport::SendReport& report, RunContext& context) {
  messages_.on_sent(report);
  const bool is_note = report.id.phase == AgreementNotes::kPhase;
  std::uint64_t wire_bytes = 0;
  if (!is_note) {
    const PieceState& piece = pieces_[report.id.piece];
    const PlaneSource& source =
        report.id.phase == wire::Phase::kReduce ? *piece.contribution : *piece.result;
    wire_bytes = source.plan().wire_bytes();
  }
  count_sent(report, wire_bytes);
  if (is_withdrawn()) {
    return {};
  }
  if (is_note && !is_receipt(report.id)) {
    notes_->on_sent(report);
  }
  return after_message(report.id, context);
}

void TolerantRun::finish_if_complete(RunContext& context) {
  const RunPhase last = agrees() ? RunPhase::kDecided : RunPhase::kExchanging;
  if (*phase_ != last || settled_ != pieces_.size() || open_receipts_ > 0) {
    return;
  }
  // No calculation may touch the caller's memory once the run is done.
  if (has_jobs()) {
    return;
  }
  phase_.enter(RunPhase::kDone);
  remember_stragglers();
  restore_dropped();
  complete_report();
  deadlines_ = {};
  // Messages that others still send are not needed; those that they are owed go on.
  messages_.withdraw_if(context, [this](const transport::MessageKey& key) {
    return key.message.source != config_.group.rank;
  });
}

base::Instant TolerantRun::next_timeout() const {
  return deadlines_.next();
}

base::Status TolerantRun::advance(RunContext& context) {
  if (agrees()) {
    follow_decision(context);
  }
  finish_if_complete(context);
  return agrees() ? notes_->flush(context) : base::Status();
}

// For a piece that it owns, a message from every worker and one to it; for others, one each way;
// and the receipts.
std::size_t TolerantRun::message_count() const {
  const std::size_t of_peer = expects_receipts() ? 3 : 2;
  std::size_t messages = agrees() ? AgreementNotes::max_messages(config_.group.world) : 0;
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    const bool is_elsewhere = pieces_[index].sum_state == SumState::kElsewhere &&
                              pieces_[index].contribution_state == ContributionState::kNone;
    if (!is_beyond_window(index) && !is_elsewhere) {
      messages += of_peer * (is_mine(pieces_[index]) ? config_.group.workers() : 1U);
    }
  }
  return messages;
}

std::vector<std::uint16_t> TolerantRun::awaited() const {
  return messages_.peers();
}

// True if something is still due from the peer. Contributions that a rank did without, and notes of
// a peer that has decided and left, are not missed.
bool TolerantRun::needs(std::uint16_t peer) const {
  const bool is_awaited = messages_.any([peer](const transport::MessageKey& key) {
    const bool is_note = key.message.phase == AgreementNotes::kPhase && !is_receipt(key.message);
    return key.message.source == peer && !is_note;
  });
  return is_awaited || std::any_of(pieces_.begin(), pieces_.end(), [&](const PieceState& piece) {
           const bool takes_part =
               piece.place.owner == peer || (is_mine(piece) && peer < config_.group.workers());
           return takes_part && !piece.has_begun && !piece.is_settled();
         });
}

// The peer has decided, so there is a decision, and the rank that made it stays until all have been
// told. Messages still expected from the peer belong to shards that do not count: a rank is idle,
// and may leave, when everything that counts was received.
void TolerantRun::on_left(std::uint16_t peer, RunContext& context) {
  if (agrees() && !is_done()) {
    messages_.withdraw_if(
        context, [peer](const transport::MessageKey& key) { return key.message.source == peer; });
  }
}

}  // namespace spillway::collective
