// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "collective/reduction.h"

namespace spillway::collective {
namespace {

constexpr wire::Phase kNotes = wire::Phase::kBroadcast;
// A note's part: what it is, and the chair's number.
constexpr std::uint32_t kReady = 0;
constexpr std::uint32_t kProposal = 2;
constexpr std::uint32_t kCommit = 4;
constexpr transport::LossPolicy kNoLoss{.bound_ppm = 0, .min_planes = ByteLayout::kPlanes};
// What a note may take on its way, besides what it waits for.
constexpr base::Duration kNoteTime = base::microseconds(300);

std::uint32_t note_key(std::uint32_t part, std::uint16_t from) {
  return part << 16 | from;
}

std::uint32_t part_of(std::uint32_t what, Chair chair) {
  return what + static_cast<std::uint32_t>(chair);
}

Chair chair_of(std::uint32_t part) {
  return static_cast<Chair>(part % kChairs);
}

// READY: the shards, whether something was taken, and that.
std::size_t note_bytes(std::uint32_t part, std::uint16_t world) {
  const std::size_t set = no_shards(world).size();
  return part < kProposal ? 2 * set + 1 : set;
}

std::vector<std::uint8_t> bytes_of(const Readiness& readiness) {
  std::vector<std::uint8_t> bytes = readiness.shards;
  bytes.push_back(readiness.taken ? 1 : 0);
  const ShardSet taken = readiness.taken.value_or(ShardSet(readiness.shards.size(), 0));
  bytes.insert(bytes.end(), taken.begin(), taken.end());
  return bytes;
}

Readiness readiness_of(const std::vector<std::uint8_t>& bytes) {
  const auto half = static_cast<std::ptrdiff_t>(bytes.size() / 2);
  Readiness readiness{ShardSet(bytes.begin(), bytes.begin() + half), std::nullopt};
  if (bytes[static_cast<std::size_t>(half)] != 0) {
    readiness.taken = ShardSet(bytes.begin() + half + 1, bytes.end());
  }
  return readiness;
}

std::uint16_t least_ranks(const Tolerance& tolerance, std::uint16_t world) {
  const double least = std::ceil(tolerance.least_contributors * world - 1e-9);
  return static_cast<std::uint16_t>(std::clamp(least, 1.0, static_cast<double>(world)));
}

// What the planes that came of a sum leave open, beside those the owner has.
double expected_drift(const packetize::DeliveryReport& report, unsigned planes) {
  const auto all = static_cast<double>(std::max<std::size_t>(report.coordinates(), 1));
  double drift = 0.0;
  for (unsigned came = 1; came < planes; ++came) {
    drift += static_cast<double>(report.coordinates_by_planes[came]) / all *
             codec::expected_nmse(came, codec::Estimate::kUnbiased);
  }
  const double lost = report.lost_fraction();
  return drift + (lost < 1.0 ? lost / (1.0 - lost) : 1.0);
}

}  // namespace

TolerantRun::TolerantRun(const RunRequest& request, TolerantLayout layout,
                         const ExactSetting& setting, Pace& pace, std::span<float> residual)
    : request_(request),
      layout_(std::move(layout)),
      setting_(setting),
      pace_(pace),
      residual_(residual),
      signature_(signature(request.operation)) {
  const Tolerance& tolerance = *request.operation.tolerance;
  for (const TolerantPiece& place : layout_.pieces) {
    Piece& piece = pieces_.emplace_back();
    piece.place = place;
    own_pieces_ += is_mine(piece) ? 1 : 0;
  }
  if (tolerance.least_contributors > 0.0) {
    agreement_ = std::make_unique<Agreement>(setting.group, request.step,
                                             least_ranks(tolerance, setting.group.world),
                                             static_cast<AgreementPort&>(*this));
  }
  report_.operation = request.operation;
  report_.algorithm = Algorithm::kDirect;
  report_.contributors = setting.group.world;
  report_.peers.resize(setting.group.world);
  was_heard_.resize(setting.group.world);
  pace_.is_lagging.resize(setting.group.world);
}

// ------------------------------------------------------------------ calculations

void TolerantRun::PieceJob::run() {
  Piece& piece = owner_.pieces_[piece_];
  switch (work_) {
    case Work::kEncode:
      owner_.encode(piece, piece_);
      break;
    case Work::kAddUp:
      owner_.add_up(piece, piece_);
      break;
    case Work::kDecode:
      owner_.decode(piece);
      break;
  }
}

std::vector<float> TolerantRun::own_values(const Extent& extent) const {
  std::vector<float> values(extent.count);
  const DataType type = request_.operation.type;
  convert_to_float(type, request_.input + extent.first * element_size(type), extent.count,
                   values.data());
  return values;
}

void TolerantRun::store(const Extent& extent, std::span<const float> values) const {
  const DataType type = request_.operation.type;
  convert_from_float(type, values.data(), extent.count,
                     request_.output + extent.first * element_size(type));
}

void TolerantRun::encode(Piece& piece, std::uint32_t index) {
  std::vector<float> values = own_values(piece.place.extent);
  const wire::MessageId id = id_of(wire::Phase::kReduce, index, setting_.group.rank);
  if (residual_.empty()) {
    piece.contribution->encode(values, setting_.job, id);
    return;
  }
  const std::span<float> owed = residual_.subspan(piece.place.extent.first, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] += owed[i];
  }
  piece.contribution->encode(values, setting_.job, id);
  piece.contribution->decode(owed, setting_.job, id);
  bool is_finite = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    owed[i] = values[i] - owed[i];
    is_finite = is_finite && std::isfinite(owed[i]);
  }
  if (!is_finite) {
    std::fill(owed.begin(), owed.end(), 0.0F);  // a bad step is not remembered for ever
  }
}

// By rank, row by row: a row of which nothing came from a rank has one contributor less, and its
// sum is scaled up to all of them.
void TolerantRun::add_up(Piece& piece, std::uint32_t index) {
  const std::uint16_t world = setting_.group.world;
  const std::uint16_t rank = setting_.group.rank;
  const std::vector<float> own = own_values(piece.place.extent);
  std::vector<float> sum(own.size(), 0.0F);
  const codec::RowLayout& rows = piece.result->plan().layout();
  std::vector<std::uint16_t> contributors(rows.row_count(), 0);
  std::uint16_t present = 0;
  for (std::uint16_t from = 0; from < world; ++from) {
    CodedSink* sink = piece.contributions[from].get();
    if (sink != nullptr) {
      sink->finish();
    }
    bool is_there = from == rank;
    for (std::size_t index_of_row = 0; index_of_row < rows.row_count(); ++index_of_row) {
      if (from != rank && (sink == nullptr || !sink->has_row(index_of_row))) {
        continue;
      }
      is_there = true;
      ++contributors[index_of_row];
      const codec::Row row = rows.row(index_of_row);
      const float* values = (from == rank ? own.data() : sink->values().data()) + row.offset;
      for (std::size_t i = 0; i < row.values; ++i) {
        sum[row.offset + i] += values[i];
      }
    }
    present = static_cast<std::uint16_t>(present + (is_there ? 1 : 0));
    piece.contributions[from].reset();
  }
  const bool averages = request_.operation.op == ReduceOp::kAverage;
  for (std::size_t index_of_row = 0; index_of_row < rows.row_count(); ++index_of_row) {
    const codec::Row row = rows.row(index_of_row);
    const auto there = static_cast<float>(contributors[index_of_row]);
    const float factor = averages ? 1.0F / there : static_cast<float>(world) / there;
    for (std::size_t i = 0; i < row.values; ++i) {
      sum[row.offset + i] *= factor;
    }
  }
  piece.contributors = present;
  const wire::MessageId id = id_of(wire::Phase::kGather, index, rank);
  piece.result->encode(sum, setting_.job, id);
  piece.result->decode(sum, setting_.job, id);
  store(piece.place.extent, sum);
}

void TolerantRun::decode(Piece& piece) {
  const packetize::DeliveryReport report = piece.sum->finish();
  piece.drift = request_.operation.tolerance->lossy_gather
                    ? expected_drift(report, layout_.gather_encoding.planes)
                    : 0.0;
  store(piece.place.extent, piece.sum->values());
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
  base::Status status = context.endpoint.expect(spec, context.now);
  if (status.ok()) {
    messages_.insert({id, id.source});
  }
  return status;
}

base::Status TolerantRun::expect_note(std::uint16_t from, std::uint32_t part, RunContext& context) {
  NoteSlot& slot = notes_in_[note_key(part, from)];
  slot.bytes.resize(note_bytes(part, setting_.group.world));
  slot.sink = std::make_unique<ByteSink>(slot.bytes.data(), slot.bytes.size(), setting_.layout,
                                         *setting_.auth);
  transport::ReceiveSpec spec;
  spec.id = id_of(kNotes, part, from);
  spec.packets = setting_.layout.packets(slot.bytes.size());
  spec.packet_bytes = setting_.layout.packet_bytes;
  spec.planes = ByteLayout::kPlanes;
  spec.priority = SPILLWAY_PRIORITIES - 1;
  spec.loss = kNoLoss;
  spec.sink = slot.sink.get();
  base::Status status = context.endpoint.expect(spec, context.now);
  if (status.ok()) {
    messages_.insert({spec.id, from});
  }
  return status;
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
  base::Status status = context.endpoint.send(spec, context.now);
  if (status.ok()) {
    messages_.insert({id, to});
  }
  return status;
}

base::Status TolerantRun::send_note(const Note& note, RunContext& context) {
  const NoteBytes& kept = sent_notes_.emplace_back(note.bytes);
  ByteSource& source = note_sources_.emplace_back(kept.data(), kept.size(), setting_.layout,
                                                  setting_.job, *setting_.auth);
  transport::SendSpec spec;
  spec.id = id_of(kNotes, note.part, setting_.group.rank);
  spec.to = note.to;
  spec.packets = setting_.layout.packets(kept.size());
  spec.packet_bytes = setting_.layout.packet_bytes;
  spec.priority = SPILLWAY_PRIORITIES - 1;
  spec.loss = kNoLoss;
  spec.source = &source;
  base::Status status = context.endpoint.send(spec, context.now);
  if (status.ok()) {
    messages_.insert({spec.id, note.to});
  }
  return status;
}

void TolerantRun::withdraw_if(RunContext& context,
                              const std::function<bool(const transport::MessageKey&)>& condition) {
  for (auto message = messages_.begin(); message != messages_.end();) {
    if (condition(*message)) {
      context.endpoint.withdraw(message->message, message->peer, context.now);
      message = messages_.erase(message);
    } else {
      ++message;
    }
  }
}

void TolerantRun::send_ready(std::uint16_t to, Chair chair, const Readiness& readiness) {
  notes_out_.push_back({to, part_of(kReady, chair), bytes_of(readiness)});
}

void TolerantRun::send_proposal(std::uint16_t to, Chair chair, const ShardSet& shards) {
  notes_out_.push_back({to, part_of(kProposal, chair), shards});
}

void TolerantRun::send_commit(std::uint16_t to, Chair chair, const ShardSet& shards) {
  notes_out_.push_back({to, part_of(kCommit, chair), shards});
}

base::Status TolerantRun::flush_notes(RunContext& context) {
  if (refuses_first_ && !was_refused_) {
    was_refused_ = true;
    const std::uint16_t first = agreement_->chair(Chair::kFirst);
    const transport::MessageKey refused{id_of(kNotes, part_of(kProposal, Chair::kFirst), first),
                                        first};
    withdraw_if(context, [&](const transport::MessageKey& key) { return key == refused; });
  }
  for (const Note& note : std::exchange(notes_out_, {})) {
    if (base::Status status = send_note(note, context); !status.ok()) {
      return status;
    }
  }
  return {};
}

// ------------------------------------------------------------------ steps

base::Status TolerantRun::expect_all(RunContext& context) {
  const std::uint16_t world = setting_.group.world;
  const std::uint16_t rank = setting_.group.rank;
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    Piece& piece = pieces_[index];
    const packetize::PacketPlan gather = layout_.gather_plan(piece.place).value();
    const packetize::PacketPlan reduce = layout_.reduce_plan(piece.place).value();
    if (!is_mine(piece)) {
      const wire::MessageId id = id_of(wire::Phase::kGather, index, piece.place.owner);
      piece.sum = std::make_unique<CodedSink>(gather, setting_.job, id, *setting_.auth);
      piece.contribution = std::make_unique<CodedSource>(reduce, *setting_.auth);
      if (base::Status status = expect_coded(id, gather, gather_loss(), *piece.sum, context);
          !status.ok()) {
        return status;
      }
      continue;
    }
    piece.is_encoded = true;
    piece.result = std::make_unique<CodedSource>(gather, *setting_.auth);
    piece.contributions.resize(world);
    piece.open_contributions = static_cast<std::uint16_t>(world - 1);
    for (std::uint16_t from = 0; from < world; ++from) {
      if (from == rank) {
        continue;
      }
      const wire::MessageId id = id_of(wire::Phase::kReduce, index, from);
      piece.contributions[from] =
          std::make_unique<CodedSink>(reduce, setting_.job, id, *setting_.auth);
      if (base::Status status =
              expect_coded(id, reduce, reduce_loss(), *piece.contributions[from], context);
          !status.ok()) {
        return status;
      }
    }
  }
  return {};
}

// Whoever holds a chair hears from all; all hear from whoever holds a chair.
base::Status TolerantRun::expect_notes(RunContext& context) {
  std::vector<std::pair<std::uint16_t, std::uint32_t>> notes;
  for (std::uint16_t peer = 0; peer < setting_.group.world; ++peer) {
    for (const Chair chair : {Chair::kFirst, Chair::kSecond}) {
      if (peer == setting_.group.rank) {
        continue;
      }
      if (agreement_->chair(chair) == setting_.group.rank) {
        notes.emplace_back(peer, part_of(kReady, chair));
      }
      if (agreement_->chair(chair) == peer) {
        notes.emplace_back(peer, part_of(kProposal, chair));
        notes.emplace_back(peer, part_of(kCommit, chair));
      }
    }
  }
  for (const auto& [peer, part] : notes) {
    if (base::Status status = expect_note(peer, part, context); !status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status TolerantRun::start(RunContext& context) {
  if (base::Status status = expect_all(context); !status.ok()) {
    return status;
  }
  if (has_deadlines()) {
    if (base::Status status = expect_notes(context); !status.ok()) {
      return status;
    }
    if (const std::optional<base::Duration> usual = pace_.reduce.deadline()) {
      collect_deadline_ = context.now + *usual;
      collect_until_ = collect_deadline_;
    }
  }
  // From the next rank on, so that owners are not all sent to at once.
  for (std::uint32_t i = 0; i < pieces_.size(); ++i) {
    const auto first = static_cast<std::uint32_t>(pieces_.size() * (setting_.group.rank + 1U) /
                                                  setting_.group.world);
    const auto index = static_cast<std::uint32_t>((first + i) % pieces_.size());
    if (!is_mine(pieces_[index])) {
      submit(index, Work::kEncode, context);
    }
  }
  if (own_pieces_ == 0) {
    sums_formed_ = context.now;
  }
  return {};
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
  Piece& piece = pieces_[index];
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
  look_whether_done(context);
  return flush_notes(context);
}

base::Status TolerantRun::on_sum(std::uint32_t index, RunContext& context) {
  Piece& piece = pieces_[index];
  report_.contributors = std::min(report_.contributors, piece.contributors);
  if (++own_sums_ == own_pieces_) {
    sums_formed_ = context.now;
    pace_.reduce.add((is_cut_short_ ? last_contribution_ : context.now) - report_.started);
    if (const std::optional<base::Duration> usual = pace_.gather.deadline();
        usual && has_deadlines()) {
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
    if (base::Status status = send_coded(id, to, *piece.result, gather_loss(), context);
        !status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status TolerantRun::on_received(const transport::ReceiveReport& report, RunContext& context) {
  messages_.erase({report.id, report.id.source});
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
      on_note(report);
      follow_decision(context);
  }
  look_whether_done(context);
  return flush_notes(context);
}

void TolerantRun::on_contribution(const transport::ReceiveReport& report, RunContext& context) {
  const bool is_cut = report.outcome == transport::Outcome::kCancelled;
  PeerDelivery& from = report_.peers[report.id.source];
  from.add(report);
  from.late = from.late || is_cut;
  Piece& piece = pieces_[report.id.shard];
  --piece.open_contributions;
  if (report.delivered > 0) {
    was_heard_[report.id.source] = true;
  }
  if (!is_cut) {
    ++piece.ended_contributions;
    last_contribution_ = context.now;
  }
  if (collect_deadline_passed_ || waits_for_laggards_only(piece)) {
    stop_collecting(context);  // perhaps enough are there by now
  }
  add_up_if_complete(report.id.shard, context);
}

void TolerantRun::add_up_if_complete(std::uint32_t index, RunContext& context) {
  Piece& piece = pieces_[index];
  if (piece.open_contributions == 0 && !piece.is_adding_up && !piece.is_dropped) {
    piece.is_adding_up = true;
    submit(index, Work::kAddUp, context);
  }
}

void TolerantRun::decode_if_possible(std::uint32_t index, RunContext& context) {
  Piece& piece = pieces_[index];
  if (piece.has_come && piece.is_encoded && !piece.is_dropped) {
    piece.has_come = false;
    submit(index, Work::kDecode, context);
  }
}

// Time is up: pieces with enough contributions go on with what they have. Those that are cut come
// back through on_contribution().
void TolerantRun::stop_collecting(RunContext& context) {
  const std::uint16_t least = least_ranks(*request_.operation.tolerance, setting_.group.world);
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    const Piece& piece = pieces_[index];
    if (!is_mine(piece) || piece.open_contributions == 0 || piece.ended_contributions + 1 < least ||
        !(collect_deadline_passed_ || waits_for_laggards_only(piece))) {
      continue;
    }
    is_cut_short_ = true;
    for (std::uint16_t from = 0; from < setting_.group.world; ++from) {
      if (from != setting_.group.rank) {
        context.endpoint.cancel(id_of(wire::Phase::kReduce, index, from), context.now);
      }
    }
  }
}

// Everything else is there, and of those that are missing nothing has been heard lately.
bool TolerantRun::waits_for_laggards_only(const Piece& piece) const {
  if (!has_deadlines() || piece.open_contributions == 0) {
    return false;
  }
  std::uint16_t laggards = 0;
  for (std::uint16_t from = 0; from < setting_.group.world; ++from) {
    const CodedSink* sink = piece.contributions[from].get();
    laggards = static_cast<std::uint16_t>(
        laggards + (sink != nullptr && lags(from) && !sink->has_begun() ? 1 : 0));
  }
  return laggards >= piece.open_contributions;
}

void TolerantRun::on_note(const transport::ReceiveReport& report) {
  if (report.outcome == transport::Outcome::kCancelled) {
    return;
  }
  const std::uint32_t part = report.id.shard;
  const NoteBytes& bytes = notes_in_.at(note_key(part, report.id.source)).bytes;
  if (part < kProposal) {
    agreement_->on_ready(report.id.source, chair_of(part), readiness_of(bytes));
  } else if (part < kCommit) {
    agreement_->on_proposal(chair_of(part), bytes);
  } else {
    agreement_->on_commit(bytes);
  }
}

base::Status TolerantRun::on_sent(const transport::SendReport& report, RunContext& context) {
  messages_.erase({report.id, report.to});
  report_.packets_sent += report.transmitted;
  report_.packets_repeated += report.transmitted - std::min(report.transmitted, report.packets);
  const bool is_note = report.id.phase == kNotes;
  if (!is_note) {
    const Piece& piece = pieces_[report.id.shard];
    const CodedSource& source =
        report.id.phase == wire::Phase::kReduce ? *piece.contribution : *piece.result;
    report_.wire_bytes_sent +=
        std::uint64_t{report.transmitted} * source.plan().wire_bytes() / report.packets;
  }
  if (is_withdrawn_) {
    return {};
  }
  if (is_note && report.id.shard >= kProposal && report.id.shard < kCommit) {
    agreement_->on_answer(chair_of(report.id.shard),
                          report.outcome == transport::Outcome::kEverything);
    follow_decision(context);
    look_whether_done(context);
  }
  return flush_notes(context);
}

void TolerantRun::look_whether_ready(base::Instant now) {
  if (!has_deadlines() || agreement_->is_ready() || own_sums_ < own_pieces_) {
    return;
  }
  last_held_ = now;
  const bool has_all = std::all_of(pieces_.begin(), pieces_.end(), [this](const Piece& piece) {
    return piece.is_held || (piece.sum && lags(piece.place.owner) && !piece.sum->has_begun());
  });
  if (has_all) {
    become_ready(now);
  }
}

void TolerantRun::become_ready(base::Instant now) {
  ShardSet shards = no_shards(setting_.group.world);
  std::vector<bool> lacks(setting_.group.world);
  for (const Piece& piece : pieces_) {
    lacks[piece.place.shard] = lacks[piece.place.shard] || !piece.is_held;
  }
  for (std::uint16_t shard = 0; shard < setting_.group.world; ++shard) {
    if (!lacks[shard]) {
      add_shard(shards, shard);
    }
  }
  gather_until_ = transport::kNever;
  pace_.gather.add(last_held_ - sums_formed_);
  // Without a usual duration nobody is left behind.
  if (const std::optional<base::Duration> usual = pace_.gather.deadline()) {
    patience_until_ = now + *usual / 20 + kNoteTime;
    first_until_ = patience_until_ + *usual / 20 + kNoteTime * 3;
  }
  if (lags(agreement_->chair(Chair::kFirst))) {
    first_until_ = now;
  }
  agreement_->on_own_ready(shards);
}

// Nothing more is sent or awaited of shards that do not count.
void TolerantRun::follow_decision(RunContext& context) {
  if (has_decided_ || !agreement_->decision()) {
    return;
  }
  has_decided_ = true;
  const ShardSet& shards = *agreement_->decision();
  std::vector<bool> is_empty(setting_.group.world);
  for (std::uint32_t index = 0; index < pieces_.size(); ++index) {
    Piece& piece = pieces_[index];
    if (has_shard(shards, piece.place.shard)) {
      continue;
    }
    is_empty[piece.place.shard] = true;
    report_.peers[piece.place.owner].late = true;
    held_ += piece.is_held ? 0 : 1;
    piece.is_held = false;
    piece.is_dropped = true;
    withdraw_if(context, [&](const transport::MessageKey& key) {
      return key.message.phase != kNotes && key.message.shard == index;
    });
  }
  report_.empty_shards =
      static_cast<std::uint16_t>(std::count(is_empty.begin(), is_empty.end(), true));
}

void TolerantRun::look_whether_done(RunContext& context) {
  if (is_done_ || held_ != pieces_.size() || (has_deadlines() && !has_decided_)) {
    return;
  }
  // No calculation may touch the caller's memory any more.
  if (jobs_out_ > 0) {
    return;
  }
  is_done_ = true;
  remember_laggards();
  for (const Piece& piece : pieces_) {
    if (piece.is_dropped) {
      store(piece.place.extent, std::vector<float>(piece.place.extent.count, 0.0F));
    }
  }
  collect_until_ = gather_until_ = patience_until_ = first_until_ = transport::kNever;
  // What others still send is of no interest; what they are still owed goes on.
  withdraw_if(context, [this](const transport::MessageKey& key) {
    return key.message.source != setting_.group.rank;
  });
}

void TolerantRun::remember_laggards() {
  for (std::uint16_t rank = 0; rank < setting_.group.world; ++rank) {
    pace_.is_lagging[rank] = report_.peers[rank].late && !was_heard_[rank];
  }
}

base::Instant TolerantRun::next_timeout() const {
  return std::min({collect_until_, gather_until_, patience_until_, first_until_});
}

base::Status TolerantRun::on_timeout(RunContext& context) {
  if (context.now >= collect_until_) {
    // Looked at again with every contribution that ends; the clock need not call once more.
    collect_deadline_passed_ = true;
    collect_until_ = transport::kNever;
    stop_collecting(context);
  }
  if (context.now >= gather_until_ && !agreement_->is_ready()) {
    become_ready(context.now);
  }
  if (context.now >= patience_until_) {
    patience_until_ = transport::kNever;
    agreement_->on_patience_over();
  }
  if (context.now >= first_until_) {
    first_until_ = transport::kNever;
    agreement_->on_first_late();
    // As the second, this rank has polls of its own to wait for.
    patience_until_ = context.now + kNoteTime;
  }
  follow_decision(context);
  look_whether_done(context);
  return flush_notes(context);
}

void TolerantRun::withdraw(RunContext& context) {
  withdraw_if(context, [](const transport::MessageKey&) { return true; });
  is_withdrawn_ = true;
}

std::size_t TolerantRun::message_count() const {
  const std::size_t notes = has_deadlines() ? 8U * setting_.group.world : 0;
  return pieces_.size() + own_pieces_ * 2 * setting_.group.world + notes;
}

std::vector<std::uint16_t> TolerantRun::awaited() const {
  std::vector<std::uint16_t> ranks;
  for (const transport::MessageKey& key : messages_) {
    ranks.push_back(key.peer);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace spillway::collective
