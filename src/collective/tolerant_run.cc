// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace spillway::collective {
namespace {

// Long enough to hear what others have said already.
constexpr base::Duration kReadingTime = base::microseconds(300);

std::uint16_t least_ranks(const Tolerance& tolerance, std::uint16_t world) {
  const double least = std::ceil(tolerance.least_contributors * world - 1e-9);
  return static_cast<std::uint16_t>(std::clamp(least, 1.0, static_cast<double>(world)));
}

}  // namespace

TolerantRun::TolerantRun(const RunRequest& request, TolerantLayout layout,
                         const ExactSetting& setting, Pace& pace, std::span<float> residual)
    : request_(request),
      layout_(std::move(layout)),
      setting_(setting),
      pace_(pace),
      work_{request.operation, setting.group, setting.job, request.input, request.output, residual},
      signature_(signature(request.operation)) {
  const Tolerance& tolerance = *request.operation.tolerance;
  for (const TolerantPiece& place : layout_.pieces) {
    PieceState& piece = pieces_.emplace_back();
    piece.place = place;
    own_pieces_ += is_mine(piece) ? 1 : 0;
  }
  if (has_deadlines() && setting.group.servers == 0) {
    notes_ = std::make_unique<AgreementNotes>(id_of(AgreementNotes::kPhase, 0, 0),
                                              least_ranks(tolerance, setting.group.world), setting,
                                              messages_);
  }
  report_.operation = request.operation;
  report_.algorithm = setting.group.servers > 0 ? Algorithm::kServers : Algorithm::kDirect;
  report_.contributors = setting.group.workers();
  report_.peers.resize(setting.group.world);
  was_heard_.resize(setting.group.world);
  pace_.is_lagging.resize(setting.group.world);
}

void TolerantRun::PieceJob::run() {
  PieceState& piece = owner_.pieces_[piece_];
  const std::uint16_t rank = owner_.setting_.group.rank;
  switch (work_) {
    case Work::kEncode:
      encode_contribution(owner_.work_, owner_.id_of(wire::Phase::kReduce, piece_, rank), piece);
      break;
    case Work::kAddUp:
      add_up_contributions(owner_.work_, owner_.id_of(wire::Phase::kGather, piece_, rank), piece);
      break;
    case Work::kDecode:
      decode_sum(owner_.work_, piece);
      break;
  }
}

// ------------------------------------------------------------------ messages

wire::MessageId TolerantRun::id_of(wire::Phase phase, std::uint32_t part,
                                   std::uint16_t source) const {
  return {.step = request_.step,
          .bucket = signature_,
          .shard = static_cast<std::uint16_t>(part),
          .source = source,
          .phase = phase};
}

transport::LossPolicy TolerantRun::reduce_loss() const {
  const Tolerance& tolerance = *request_.operation.tolerance;
  return {.bound_ppm = tolerance.bound_ppm,
          .min_planes = std::min(tolerance.min_planes, tolerance.precision)};
}

transport::LossPolicy TolerantRun::gather_loss() const {
  const Tolerance& tolerance = *request_.operation.tolerance;
  if (tolerance.lossy_gather) {
    return {.bound_ppm = tolerance.bound_ppm,
            .min_planes = std::min(tolerance.min_planes, tolerance.gather_precision)};
  }
  return {.bound_ppm = 0, .min_planes = tolerance.gather_precision};
}

base::Status TolerantRun::expect_coded(const wire::MessageId& id, const packetize::PacketPlan& plan,
                                       const transport::LossPolicy& loss,
                                       transport::PayloadSink& sink, RunContext& context) {
  transport::ReceiveSpec spec;
  spec.id = id;
  spec.packets = static_cast<std::uint32_t>(plan.packet_count());
  spec.packet_bytes = static_cast<std::uint32_t>(plan.max_packet_size());
  spec.planes = static_cast<std::uint8_t>(plan.planes());
  spec.priority = request_.priority;
  spec.loss = loss;
  spec.sink = &sink;
  return messages_.expect(spec, context);
}

base::Status TolerantRun::send_coded(const wire::MessageId& id, std::uint16_t to,
                                     CodedSource& source, const transport::LossPolicy& loss,
                                     RunContext& context) {
  transport::SendSpec spec;
  spec.id = id;
  spec.to = to;
  spec.packets = static_cast<std::uint32_t>(source.plan().packet_count());
  spec.packet_bytes = static_cast<std::uint32_t>(source.plan().max_packet_size());
  spec.priority = request_.priority;
  spec.loss = loss;
  spec.source = &source;
  return messages_.send(spec, context);
}

// ------------------------------------------------------------------ steps

base::Status TolerantRun::expect_all(RunContext& context) {
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    PieceState& piece = pieces_[index];
    if (!is_mine(piece) && setting_.group.is_server()) {
      piece.is_held = true;  // another server's: nothing to do here
      ++held_;
      continue;
    }
    if (base::Status status =
            is_mine(piece) ? expect_contributions(index, context) : expect_sum(index, context);
        !status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status TolerantRun::expect_contributions(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  const packetize::PacketPlan reduce = layout_.reduce_plan(piece.place).value();
  piece.is_encoded = true;
  piece.result =
      std::make_unique<CodedSource>(layout_.gather_plan(piece.place).value(), *setting_.auth);
  piece.contributions.resize(setting_.group.workers());
  piece.was_cut.resize(setting_.group.workers(), false);
  for (std::uint16_t from = 0; from < setting_.group.workers(); ++from) {
    if (from == setting_.group.rank) {
      ++piece.there;
      continue;
    }
    const wire::MessageId id = id_of(wire::Phase::kReduce, index, from);
    piece.contributions[from] =
        std::make_unique<CodedSink>(reduce, setting_.job, id, *setting_.auth);
    ++piece.open_contributions;
    if (base::Status status =
            expect_coded(id, reduce, reduce_loss(), *piece.contributions[from], context);
        !status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status TolerantRun::expect_sum(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  const packetize::PacketPlan gather = layout_.gather_plan(piece.place).value();
  const wire::MessageId id = id_of(wire::Phase::kGather, index, piece.place.owner);
  piece.sum = std::make_unique<CodedSink>(gather, setting_.job, id, *setting_.auth);
  piece.contribution =
      std::make_unique<CodedSource>(layout_.reduce_plan(piece.place).value(), *setting_.auth);
  return expect_coded(id, gather, gather_loss(), *piece.sum, context);
}

base::Status TolerantRun::start(RunContext& context) {
  if (base::Status status = expect_all(context); !status.ok()) {
    return status;
  }
  if (agrees()) {
    if (base::Status status = notes_->start(context); !status.ok()) {
      return status;
    }
  }
  if (const std::optional<base::Duration> usual = pace_.reduce.deadline();
      usual && has_deadlines()) {
    collect_deadline_ = context.now + *usual;
    collect_until_ = collect_deadline_;
  }
  if (agrees() && pace_.was_left_behind) {
    // The others may have decided long ago. Then there is nothing to contribute, and time to catch
    // up; what they said is about to be read.
    contribute_at_ = context.now + kReadingTime;
  } else {
    contribute(context);
  }
  if (own_pieces_ == 0) {
    sums_formed_ = context.now;
  }
  return go_on(context);  // a server may have nothing to do
}

// From the next rank on, so that owners are not all sent to at once.
void TolerantRun::contribute(RunContext& context) {
  contribute_at_ = transport::kNever;
  for (std::uint32_t i = 0; i < pieces_.size(); ++i) {
    const auto first = static_cast<std::uint32_t>(pieces_.size() * (setting_.group.rank + 1U) /
                                                  setting_.group.world);
    const auto index = static_cast<std::uint32_t>((first + i) % pieces_.size());
    if (pieces_[index].contribution) {
      submit(index, Work::kEncode, context);
    }
  }
}

void TolerantRun::submit(std::uint32_t piece, Work work, RunContext& context) {
  PieceJob& job = jobs_.emplace_back(*this, piece, work);
  job.operation = request_.key;
  job.tag = piece << 2 | static_cast<std::uint32_t>(work);
  job.priority = request_.priority;
  ++jobs_out_;
  context.pool.submit(job);
}

base::Status TolerantRun::on_computed(std::uint32_t tag, RunContext& context) {
  --jobs_out_;
  if (is_withdrawn_) {
    return {};
  }
  const std::uint32_t index = tag >> 2;
  PieceState& piece = pieces_[index];
  switch (static_cast<Work>(tag & 3U)) {
    case Work::kEncode: {
      piece.is_encoded = true;
      if (piece.is_dropped) {
        break;
      }
      const wire::MessageId id = id_of(wire::Phase::kReduce, index, setting_.group.rank);
      if (base::Status status =
              send_coded(id, piece.place.owner, *piece.contribution, reduce_loss(), context);
          !status.ok()) {
        return status;
      }
      decode_if_possible(index, context);
      break;
    }
    case Work::kAddUp:
      if (base::Status status = on_sum(index, context); !status.ok()) {
        return status;
      }
      break;
    case Work::kDecode:
      report_.drift = std::max(report_.drift, piece.drift);
      piece.sum.reset();
      if (!piece.is_dropped) {
        piece.is_held = true;
        ++held_;
      }
      break;
  }
  look_whether_ready(context.now);
  return go_on(context);
}

base::Status TolerantRun::on_sum(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  report_.contributors = std::min(report_.contributors, piece.contributors);
  if (++own_sums_ == own_pieces_) {
    sums_formed_ = context.now;
    pace_.reduce.add((is_cut_short_ ? last_contribution_ : context.now) - report_.started);
    if (const std::optional<base::Duration> usual = pace_.gather.deadline(); usual && agrees()) {
      // Others may collect until their deadline, which is about this rank's.
      gather_until_ = std::max(context.now, collect_deadline_) + *usual;
    }
  }
  if (piece.is_dropped) {
    return {};
  }
  piece.is_held = true;
  ++held_;
  const wire::MessageId id = id_of(wire::Phase::kGather, index, setting_.group.rank);
  for (unsigned distance = 1; distance < setting_.group.world; ++distance) {
    const auto to =
        static_cast<std::uint16_t>((setting_.group.rank + distance) % setting_.group.world);
    if (to >= setting_.group.workers()) {
      continue;
    }
    if (base::Status status = send_coded(id, to, *piece.result, gather_loss(), context);
        !status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status TolerantRun::on_received(const transport::ReceiveReport& report, RunContext& context) {
  messages_.on_received(report);
  if (is_withdrawn_) {
    return {};
  }
  switch (report.id.phase) {
    case wire::Phase::kReduce:
      on_contribution(report, context);
      break;
    case wire::Phase::kGather: {
      report_.peers[report.id.source].add(report);
      was_heard_[report.id.source] = true;
      pieces_[report.id.shard].has_come = true;
      decode_if_possible(report.id.shard, context);
      break;
    }
    default:
      notes_->on_received(report);
  }
  return go_on(context);
}

void TolerantRun::on_contribution(const transport::ReceiveReport& report, RunContext& context) {
  const bool is_cut = report.outcome == transport::Outcome::kCancelled;
  PeerDelivery& from = report_.peers[report.id.source];
  from.add(report);
  from.late = from.late || is_cut;
  PieceState& piece = pieces_[report.id.shard];
  --piece.open_contributions;
  piece.was_cut[report.id.source] = is_cut;
  if (report.delivered > 0) {
    was_heard_[report.id.source] = true;
  }
  if (!is_cut) {
    ++piece.there;
    last_contribution_ = context.now;
  }
  if (collect_deadline_passed_ || waits_for_laggards_only(piece)) {
    stop_collecting(context);  // perhaps enough are there by now
  }
  add_up_if_complete(report.id.shard, context);
}

void TolerantRun::add_up_if_complete(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  if (piece.open_contributions == 0 && !piece.is_adding_up && !piece.is_dropped) {
    piece.is_adding_up = true;
    submit(index, Work::kAddUp, context);
  }
}

void TolerantRun::decode_if_possible(std::uint32_t index, RunContext& context) {
  PieceState& piece = pieces_[index];
  if (piece.has_come && piece.is_encoded && !piece.is_dropped) {
    piece.has_come = false;
    submit(index, Work::kDecode, context);
  }
}

// Time is up: pieces with enough contributions go on with what they have. Those that are cut come
// back through on_contribution().
void TolerantRun::stop_collecting(RunContext& context) {
  const std::uint16_t least = least_ranks(*request_.operation.tolerance, setting_.group.workers());
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    const PieceState& piece = pieces_[index];
    if (!is_mine(piece) || piece.open_contributions == 0 || piece.there < least ||
        !(collect_deadline_passed_ || waits_for_laggards_only(piece))) {
      continue;
    }
    is_cut_short_ = true;
    for (std::uint16_t from = 0; from < setting_.group.workers(); ++from) {
      if (from != setting_.group.rank) {
        context.endpoint.cancel(id_of(wire::Phase::kReduce, index, from), context.now);
      }
    }
  }
}

// Everything else is there, and of those that are missing nothing has been heard lately.
bool TolerantRun::waits_for_laggards_only(const PieceState& piece) const {
  if (!has_deadlines() || piece.open_contributions == 0) {
    return false;
  }
  std::uint16_t laggards = 0;
  for (std::uint16_t from = 0; from < setting_.group.workers(); ++from) {
    const CodedSink* sink = piece.contributions[from].get();
    laggards = static_cast<std::uint16_t>(
        laggards + (sink != nullptr && lags(from) && !sink->has_begun() ? 1 : 0));
  }
  return laggards >= piece.open_contributions;
}

base::Status TolerantRun::on_sent(const transport::SendReport& report, RunContext& context) {
  messages_.on_sent(report);
  report_.packets_sent += report.transmitted;
  report_.packets_repeated += report.transmitted - std::min(report.transmitted, report.packets);
  const bool is_note = report.id.phase == AgreementNotes::kPhase;
  if (!is_note) {
    const PieceState& piece = pieces_[report.id.shard];
    const CodedSource& source =
        report.id.phase == wire::Phase::kReduce ? *piece.contribution : *piece.result;
    report_.wire_bytes_sent +=
        std::uint64_t{report.transmitted} * source.plan().wire_bytes() / report.packets;
  }
  if (is_withdrawn_) {
    return {};
  }
  if (is_note) {
    notes_->on_sent(report);
  }
  return go_on(context);
}

void TolerantRun::look_whether_done(RunContext& context) {
  if (is_done_ || held_ != pieces_.size() || (agrees() && !has_decided_)) {
    return;
  }
  // No calculation may touch the caller's memory any more.
  if (jobs_out_ > 0) {
    return;
  }
  is_done_ = true;
  remember_laggards();
  for (const PieceState& piece : pieces_) {
    if (piece.is_dropped) {
      clear_output(work_, piece);
    }
  }
  collect_until_ = gather_until_ = patience_until_ = first_until_ = transport::kNever;
  // What others still send is of no interest; what they are still owed goes on.
  messages_.withdraw_if(context, [this](const transport::MessageKey& key) {
    return key.message.source != setting_.group.rank;
  });
}

void TolerantRun::remember_laggards() {
  for (std::uint16_t rank = 0; rank < setting_.group.world; ++rank) {
    pace_.is_lagging[rank] = report_.peers[rank].late && !was_heard_[rank];
  }
}

base::Instant TolerantRun::next_timeout() const {
  return std::min({contribute_at_, collect_until_, gather_until_, patience_until_, first_until_});
}

base::Status TolerantRun::on_timeout(RunContext& context) {
  if (context.now >= contribute_at_) {
    contribute(context);
  }
  if (context.now >= collect_until_) {
    // Looked at again with every contribution that ends; the clock need not call once more.
    collect_deadline_passed_ = true;
    collect_until_ = transport::kNever;
    stop_collecting(context);
  }
  if (agrees()) {
    look_whether_to_agree(context.now);
  }
  return go_on(context);
}

base::Status TolerantRun::go_on(RunContext& context) {
  if (agrees()) {
    follow_decision(context);
  }
  look_whether_done(context);
  return agrees() ? notes_->flush(context) : base::Status();
}

void TolerantRun::withdraw(RunContext& context) {
  messages_.withdraw_if(context, [](const transport::MessageKey&) { return true; });
  is_withdrawn_ = true;
}

std::size_t TolerantRun::message_count() const {
  const std::size_t notes = agrees() ? AgreementNotes::most_messages(setting_.group.world) : 0;
  return pieces_.size() + own_pieces_ * 2 * setting_.group.world + notes;
}

std::vector<std::uint16_t> TolerantRun::awaited() const {
  return messages_.peers();
}

// What it still gets from there. Contributions a rank did without, and notes of one that has
// decided and left, are not missed.
bool TolerantRun::needs(std::uint16_t peer) const {
  return messages_.any([peer](const transport::MessageKey& key) {
    return key.message.source == peer && key.message.phase != AgreementNotes::kPhase;
  });
}

}  // namespace spillway::collective
