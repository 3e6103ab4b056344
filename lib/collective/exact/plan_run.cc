// SPDX-License-Identifier: Apache-2.0
#include "collective/exact/plan_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "collective/device_tensor.h"
#include "collective/reduction.h"

namespace spillway::collective {

namespace {

bool is_message(const Step& step) {
  return step.kind == Step::Kind::kSend || step.kind == Step::Kind::kReceive;
}

// Names a message within an operation, at this rank.
std::uint64_t message_key(bool sends, std::uint16_t peer, wire::Phase phase, std::uint16_t part) {
  return std::uint64_t{sends} << 40 | static_cast<std::uint64_t>(phase) << 32 |
         std::uint64_t{peer} << 16 | part;
}

}  // namespace

// Memory a job touches does not move while it runs: buffers and scratch stay as long as the run.
void PlanRun::StepJob::run() {
  const Operation& operation = owner_.operation();
  if (step_.kind == Step::Kind::kCopyToHost) {
    failure = operation.device->copy_to_host(step_.span.offset, step_.span.bytes);
    return;
  }
  if (step_.kind == Step::Kind::kCopyToDevice) {
    failure = operation.device->copy_to_device(step_.span.offset, step_.span.bytes);
    return;
  }
  const std::span<const Span> sources = owner_.plan_.sources_of(step_);
  std::uint8_t* target = owner_.memory(step_.span);
  if (step_.kind == Step::Kind::kCopy) {
    const std::uint8_t* source = owner_.memory(sources.front());
    if (source != target) {
      std::memcpy(target, source, step_.span.bytes);
    }
    return;
  }
  std::vector<const std::uint8_t*> addends;
  addends.reserve(sources.size());
  for (const Span& source : sources) {
    addends.push_back(owner_.memory(source));
  }
  reduce(operation.type, operation.op, addends, step_.span.bytes / element_size(operation.type),
         target, owner_.average_over(step_));
}

void PlanRun::EncodeJob::run() {
  FloatCoderPool::Loan coders(owner_.coders_);
  const base::MutableByteView message(code_.buffer.data.get(), most_code_bytes(step_.span.bytes));
  const std::optional<std::size_t> bytes =
      (*coders).encoder.encode({owner_.memory(step_.span), step_.span.bytes},
                               *float_width(owner_.operation().type), message.subspan(kCodeStart));
  if (bytes) {
    code_.bytes = kCodeStart + *bytes;
    base::store_le(message.data(), std::uint64_t{*code_.bytes});
  }
}

void PlanRun::DecodeJob::run() {
  FloatCoderPool::Loan coders(owner_.coders_);
  const base::Status decoded =
      (*coders).decoder.decode(came_.code(), *float_width(owner_.operation().type),
                               {owner_.memory(step_.span), step_.span.bytes});
  if (!decoded.ok()) {
    failure = {decoded.code(), fmt::format("what rank {} sent cannot be decoded: {}", step_.peer,
                                           decoded.message())};
  }
}

PlanRun::PlanRun(const Operation& operation, std::uint64_t key, Plan plan, const RunConfig& config,
                 const Pools& pools, ByteForm form)
    : OperationRun(operation, key, config),
      plan_(std::move(plan)),
      pool_(pools.scratch),
      coders_(pools.coders),
      form_(form),
      states_(plan_.steps.size(), State::kWaiting),
      codes_(pools.scratch),
      staged_(config.memory),
      has_second_names_(leaves_second_names(plan_)) {
  std::size_t messages = 0;
  waits_.reserve(plan_.steps.size());
  for (StepId id = 0; id < plan_.steps.size(); ++id) {
    const Step& step = plan_.steps[id];
    waits_.push_back(step.waits_for);
    if (is_message(step)) {
      ++messages;
      by_message_.emplace(
          message_key(step.kind == Step::Kind::kSend, step.peer, step.phase, step.part), id);
    }
  }
  SPILLWAY_CHECK(by_message_.size() == messages);
  report_.algorithm = plan_.algorithm;
}

PlanRun::~PlanRun() {
  pool_.give_back(std::move(scratch_));
}

wire::MessageId PlanRun::id_of(const Step& step) const {
  return message_id(step.phase, step.part,
                    step.kind == Step::Kind::kSend ? config_.group.rank : step.peer);
}

std::uint8_t* PlanRun::memory(const Span& span) const {
  DeviceTensor* const device = operation().device.get();
  // The input is only ever read.
  void* const input = const_cast<void*>(operation().input);
  void* const output = operation().output;
  switch (span.region) {
    case Region::kInput:
      return (device ? device->host_input() : static_cast<std::uint8_t*>(input)) + span.offset;
    case Region::kOutput:
      return (device ? device->host_output() : static_cast<std::uint8_t*>(output)) + span.offset;
    case Region::kScratch:
      return scratch_.data.get() + span.offset;
  }
  return nullptr;
}

base::Status PlanRun::start(RunContext& context) {
  scratch_ = pool_.take(plan_.scratch_bytes);
  // Receives first: an answer may come before the last send is out.
  for (const bool receives : {true, false}) {
    for (StepId id = 0; id < plan_.steps.size(); ++id) {
      const bool is_receive = plan_.steps[id].kind == Step::Kind::kReceive;
      if (plan_.steps[id].waits_for == 0 && is_receive == receives) {
        if (base::Status status = launch(id, context); !status.ok()) {
          return status;
        }
      }
    }
  }
  return {};
}

base::Status PlanRun::launch(StepId id, RunContext& context) {
  const Step& step = plan_.steps[id];
  if (states_[id] == State::kFolding) {
    return finish(id, context);
  }
  states_[id] = State::kRunning;
  switch (step.kind) {
    case Step::Kind::kSend:
      return launch_send(id, context);
    case Step::Kind::kReceive:
      return launch_receive(id, context);
    case Step::Kind::kReduce:
    case Step::Kind::kCopy:
    case Step::Kind::kCopyToHost:
    case Step::Kind::kCopyToDevice:
      break;
  }
  StepJob& job = jobs_.emplace_back(*this, step);
  if (step.kind == Step::Kind::kCopyToHost || step.kind == Step::Kind::kCopyToDevice) {
    job.part = ComputeJob::Part::kCopy;
    job.sleeps = true;
  }
  hand_out(job, id, context);
  ++jobs_out_;
  return {};
}

base::Status PlanRun::launch_send(StepId id, RunContext& context) {
  const Step& step = plan_.steps[id];
  if (is_local(step)) {
    return send_place(id, context);
  }
  return form_ == ByteForm::kCode && may_be_code(step) ? send_code(id, context)
                                                       : send_bytes(id, id_of(step), context);
}

base::Status PlanRun::launch_receive(StepId id, RunContext& context) {
  const Step& step = plan_.steps[id];
  return is_local(step) ? expect_place(id, context) : expect_bytes(id, id_of(step), context);
}

base::Status PlanRun::send_bytes(StepId id, const wire::MessageId& message, RunContext& context) {
  const Step& step = plan_.steps[id];
  ByteSource& source = sources_.emplace_back(memory(step.span), step.span.bytes, config_.layout);
  return send(step, {message, config_.layout.packets(step.span.bytes), source}, context);
}

base::Status PlanRun::expect_bytes(StepId id, const wire::MessageId& message, RunContext& context) {
  const Step& step = plan_.steps[id];
  const std::uint32_t packets = config_.layout.packets(step.span.bytes);
  transport::PayloadSink& plain = sink_of(step);
  if (!may_be_code(step)) {
    return expect({message, packets, plain}, context);
  }
  EitherSink& sink =
      either_sinks_.try_emplace(id, plain, step.span.bytes, config_.layout, pool_).first->second;
  return expect({message, packets, sink, /*may_be_shorter=*/true}, context);
}

// Both ends decide alike.
bool PlanRun::may_be_code(const Step& step) const {
  return step.span.bytes >= kLeastCodedBytes && float_width(operation().type) && !is_local(step);
}

// The first send of a span has it encoded; others wait for that.
base::Status PlanRun::send_code(StepId id, RunContext& context) {
  const Step& step = plan_.steps[id];
  SpanCode& code = codes_.take(step.span);
  states_[id] = State::kEncoding;
  code.waiting.push_back(id);
  if (code.is_ready) {
    return on_encoded(id, context);
  }
  if (code.uses == 1) {
    EncodeJob& job = encode_jobs_.emplace_back(*this, step, code);
    job.part = ComputeJob::Part::kEncode;
    hand_out(job, id, context);
    ++jobs_out_;
  }
  return {};
}

base::Status PlanRun::on_encoded(StepId id, RunContext& context) {
  SpanCode& code = codes_.at(plan_.steps[id].span);
  code.is_ready = true;
  for (const StepId each : std::exchange(code.waiting, {})) {
    const Step& step = plan_.steps[each];
    states_[each] = State::kRunning;
    if (!code.bytes) {
      if (base::Status status = send_bytes(each, id_of(step), context); !status.ok()) {
        return status;
      }
      continue;
    }
    ByteSource& source =
        sources_.emplace_back(code.buffer.data.get(), *code.bytes, config_.layout, ByteForm::kCode);
    const Outgoing message{id_of(step), config_.layout.packets(*code.bytes), source};
    if (base::Status status = send(step, message, context); !status.ok()) {
      return status;
    }
    report_.code.plain_bytes += step.span.bytes;
    report_.code.bytes += *code.bytes;
  }
  return {};
}

transport::PayloadSink& PlanRun::sink_of(const Step& step) {
  const StepId sum = fold_of(step);
  if (sum == kNoStep) {
    return sinks_.emplace_back(memory(step.span), step.span.bytes, config_.layout);
  }
  states_[sum] = State::kFolding;
  return fold_sinks_.emplace_back(fold(plan_.steps[sum], step), step.span.bytes, config_.layout);
}

// The sum that waits only for this message and adds it to the caller's input; kNoStep if there is
// none.
StepId PlanRun::fold_of(const Step& receive) const {
  for (const StepId id : plan_.unlocked_by(receive)) {
    const Step& step = plan_.steps[id];
    const std::span<const Span> addends = plan_.sources_of(step);
    if (step.kind == Step::Kind::kReduce && step.waits_for == 1 && addends.size() == 2 &&
        (addends[0] == receive.span || addends[1] == receive.span) &&
        (addends[0].region == Region::kInput || addends[1].region == Region::kInput)) {
      return id;
    }
  }
  return kNoStep;
}

Fold PlanRun::fold(const Step& sum, const Step& receive) const {
  const std::span<const Span> addends = plan_.sources_of(sum);
  const bool own_is_first = addends[1] == receive.span;
  return {.type = operation().type,
          .op = operation().op,
          .average_over = average_over(sum),
          .own = memory(addends[own_is_first ? 0 : 1]),
          .own_is_first = own_is_first,
          .target = memory(sum.span)};
}

// The divisor for reduce(); 0 if there is none.
std::size_t PlanRun::average_over(const Step& sum) const {
  const bool divides = sum.is_final && operation().op == ReduceOp::kAverage;
  return divides ? config_.group.workers() : 0;
}

base::Status PlanRun::send(const Step& step, const Outgoing& message, RunContext& context) {
  transport::SendOptions options;
  options.id = message.id;
  options.to = step.peer;
  options.packets = message.packets;
  options.packet_bytes = config_.layout.packet_bytes;
  options.priority = operation().priority;
  options.loss = ByteLayout::kNoLoss;
  options.source = &message.source;
  options.carrier = config_.layout.carrier;
  base::Status status = context.send(options);
  messages_out_ += status.ok() ? 1 : 0;
  return status;
}

base::Status PlanRun::expect(const Incoming& message, RunContext& context) {
  transport::ReceiveOptions options;
  options.id = message.id;
  options.packets = message.packets;
  options.may_be_shorter = message.may_be_shorter;
  options.packet_bytes = config_.layout.packet_bytes;
  options.planes = ByteLayout::kPlanes;
  options.priority = operation().priority;
  options.loss = ByteLayout::kNoLoss;
  options.sink = &message.sink;
  options.carrier = config_.layout.carrier;
  base::Status status = context.expect(options);
  messages_out_ += status.ok() ? 1 : 0;
  return status;
}

StepId PlanRun::step_of(const wire::MessageId& id, std::uint16_t peer) const {
  const bool sends = id.source == config_.group.rank;
  const MessageName name = first_name_of(id);
  const auto found = by_message_.find(message_key(sends, peer, name.phase, name.part));
  SPILLWAY_CHECK(found != by_message_.end());
  return found->second;
}

base::Status PlanRun::on_received(const transport::ReceiveReport& report, RunContext& context) {
  --messages_out_;
  report_.peers[report.id.source].add(report);
  const StepId id = step_of(report.id, report.id.source);
  return is_place(id) ? on_place_received(id, context) : on_bytes(id, report, context);
}

// A message that came as code is decoded first. Sums that would have been formed as it came are
// then formed like all others.
base::Status PlanRun::on_bytes(StepId id, const transport::ReceiveReport& report,
                               RunContext& context) {
  const Step& step = plan_.steps[id];
  const auto found = either_sinks_.find(id);
  const bool is_code = found != either_sinks_.end() && found->second.is_coded();
  const std::uint32_t packets =
      is_code ? found->second.packets() : config_.layout.packets(step.span.bytes);
  if (report.packets != packets) {
    return {base::StatusCode::kMismatch,
            fmt::format("rank {} sent a message of {} packets as one of {}", step.peer, packets,
                        report.packets)};
  }
  if (!is_code) {
    return finish(id, context);
  }
  states_[id] = State::kDecoding;
  if (const StepId sum = fold_of(step); sum != kNoStep) {
    states_[sum] = State::kWaiting;
  }
  DecodeJob& job = decode_jobs_.emplace_back(*this, step, found->second);
  hand_out(job, id, context);
  ++jobs_out_;
  return {};
}

base::Status PlanRun::on_sent(const transport::SendReport& report, RunContext& context) {
  --messages_out_;
  report_.packets_sent += report.transmitted;
  report_.packets_repeated += report.transmitted - std::min(report.transmitted, report.packets);
  const StepId id = step_of(report.id, report.to);
  report_.wire_bytes_sent +=
      std::uint64_t{report.transmitted} *
      config_.layout.wire_bytes(is_place(id) ? sizeof(MemoryPlace) : sent_bytes(id)) /
      report.packets;
  return is_place(id) ? on_place_sent(id, context) : on_bytes_sent(id, context);
}

// The length of the message's bytes as they were sent.
std::size_t PlanRun::sent_bytes(StepId id) {
  const Span& span = plan_.steps[id].span;
  return is_code_send(id) ? codes_.at(span).bytes.value_or(span.bytes) : span.bytes;
}

base::Status PlanRun::on_bytes_sent(StepId id, RunContext& context) {
  if (is_code_send(id)) {
    codes_.give_back(plan_.steps[id].span);
  }
  return finish(id, context);
}

base::Status PlanRun::on_computed(std::uint32_t tag, RunContext& context) {
  --jobs_out_;
  if (is_withdrawn_) {
    return {};
  }
  if (states_[tag] == State::kEncoding) {
    return on_encoded(tag, context);
  }
  if (states_[tag] == State::kDecoding) {
    either_sinks_.at(tag).drop_code();
  }
  return finish(tag, context);
}

base::Status PlanRun::finish(StepId id, RunContext& context) {
  states_[id] = State::kDone;
  ++steps_done_;
  if (is_withdrawn_) {
    return {};
  }
  for (const StepId next : plan_.unlocked_by(plan_.steps[id])) {
    if (--waits_[next] == 0) {
      if (base::Status status = launch(next, context); !status.ok()) {
        return status;
      }
    }
  }
  return {};
}

void PlanRun::withdraw(RunContext& context) {
  for (StepId id = 0; id < plan_.steps.size(); ++id) {
    const Step& step = plan_.steps[id];
    if (!is_message(step)) {
      continue;
    }
    if (states_[id] == State::kRunning) {
      context.withdraw(id_of(step), step.peer);
    } else if (states_[id] == State::kFollowing) {
      context.withdraw(second_id_of(step), step.peer);
    }
  }
  staged_.clear();
  without_room_.clear();
  messages_out_ = 0;
  is_withdrawn_ = true;
}

std::vector<std::uint16_t> PlanRun::awaited() const {
  std::vector<std::uint16_t> ranks;
  for (StepId id = 0; id < plan_.steps.size(); ++id) {
    if (states_[id] != State::kWaiting && states_[id] != State::kDecoding &&
        states_[id] != State::kDone && is_message(plan_.steps[id])) {
      ranks.push_back(plan_.steps[id].peer);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

bool PlanRun::needs(std::uint16_t peer) const {
  for (StepId id = 0; id < plan_.steps.size(); ++id) {
    const Step& step = plan_.steps[id];
    if (states_[id] != State::kDone && states_[id] != State::kDecoding && is_message(step) &&
        step.peer == peer) {
      return true;
    }
  }
  return false;
}

// Messages of a plan between ranks of one machine. Such a message is one packet with a place in the
// sender's segment (byte_payload.h). If the sender has none to give, the packet says so, and the
// bytes follow in a second message, through the network.
//
// Room: a send that finds none waits until one of this run's own blocks comes back, but not for
// long: what was staged may be for ranks that wait for this very send, or have not called the
// operation yet. Then it goes through the network, as it does at once if this run has nothing
// staged. So room is a matter of speed, and no cycle of waiting can form.

namespace {

using wire::Phase;

// For fewer bytes a packet is as quick as two copies.
constexpr std::size_t kWorthwhile = 4096;
// How long a send waits while nothing comes back.
constexpr base::Duration kRoomTimeout = base::milliseconds(5);
// Second messages need names of their own, so only half of all parts can have one.
constexpr std::uint16_t kSecond = 0x8000;

}  // namespace

bool PlanRun::leaves_second_names(const Plan& plan) {
  return std::none_of(plan.steps.begin(), plan.steps.end(), [](const Step& step) {
    return step.phase == Phase::kPointToPoint && (step.part & kSecond) != 0;
  });
}

// Both ends decide alike: each knows the other's rank card and the operation.
bool PlanRun::is_local(const Step& step) const {
  return config_.memory != nullptr && config_.memory->is_local_rank(step.peer) &&
         step.span.bytes >= kWorthwhile && step.span.bytes <= PeerMemory::kMaxBytes &&
         (step.part & kSecond) == 0 && has_second_names_;
}

// Plans use no notes otherwise, so second messages of a group operation take the names of notes.
// Those of point-to-point operations, which are few, take the upper half of their own part numbers.
wire::MessageId PlanRun::second_id_of(const Step& step) const {
  wire::MessageId id = id_of(step);
  if (id.phase == Phase::kPointToPoint) {
    id.piece |= kSecond;
    return id;
  }
  id.piece = static_cast<std::uint16_t>(step.part * 2 + (step.phase == Phase::kGather ? 1 : 0));
  id.phase = Phase::kNote;
  return id;
}

PlanRun::MessageName PlanRun::first_name_of(const wire::MessageId& id) const {
  if (id.phase == Phase::kNote) {
    return {(id.piece & 1) != 0 ? Phase::kGather : Phase::kReduce,
            static_cast<std::uint16_t>(id.piece / 2)};
  }
  if (id.phase == Phase::kPointToPoint && has_second_names_) {
    return {id.phase, static_cast<std::uint16_t>(id.piece & ~kSecond)};
  }
  return {id.phase, id.piece};
}

base::Status PlanRun::send_place(StepId id, RunContext& context) {
  const Step& step = plan_.steps[id];
  if (!config_.memory->is_read_by(step.peer)) {
    return send_place(id, MemoryPlace::kNotStaged, context);
  }
  const std::optional<std::uint64_t> offset = staged_.take(step.span, memory(step.span));
  if (offset || staged_.empty()) {
    return send_place(id, offset.value_or(MemoryPlace::kNotStaged), context);
  }
  if (without_room_.empty()) {
    room_due_ = context.now + kRoomTimeout;
  }
  states_[id] = State::kWaitingForRoom;
  without_room_.push_back(id);
  return {};
}

base::Status PlanRun::send_place(StepId id, std::uint64_t offset, RunContext& context) {
  const Step& step = plan_.steps[id];
  states_[id] = State::kRunning;
  LocalSource& source =
      local_sources_.try_emplace(id, MemoryPlace{offset, step.span.bytes}, config_.layout)
          .first->second;
  return send(step, {id_of(step), kPlacePackets, source}, context);
}

base::Status PlanRun::expect_place(StepId id, RunContext& context) {
  const Step& step = plan_.steps[id];
  LocalSink& sink = local_sinks_
                        .try_emplace(id, base::MutableByteView(memory(step.span), step.span.bytes),
                                     config_.layout, *config_.memory)
                        .first->second;
  return expect({id_of(step), kPlacePackets, sink}, context);
}

// The receiver has copied what was staged, or knows that the bytes follow.
base::Status PlanRun::on_place_sent(StepId id, RunContext& context) {
  const Step& step = plan_.steps[id];
  const bool was_staged = local_sources_.at(id).is_staged();
  local_sources_.erase(id);
  if (!was_staged) {
    states_[id] = State::kFollowing;
    return send_bytes(id, second_id_of(step), context);
  }
  staged_.give_back(step.span);
  if (base::Status status = use_room(context); !status.ok()) {
    return status;
  }
  return finish(id, context);
}

base::Status PlanRun::on_place_received(StepId id, RunContext& context) {
  const bool was_staged = local_sinks_.at(id).is_staged();
  local_sinks_.erase(id);
  if (was_staged) {
    return finish(id, context);
  }
  states_[id] = State::kFollowing;
  return expect_bytes(id, second_id_of(plan_.steps[id]), context);
}

// There is more room than before: tries the waiting sends again, in their order.
base::Status PlanRun::use_room(RunContext& context) {
  std::deque<StepId> waiting = std::exchange(without_room_, {});
  while (!waiting.empty() && without_room_.empty()) {
    const StepId id = waiting.front();
    waiting.pop_front();
    if (base::Status status = send_place(id, context); !status.ok()) {
      return status;
    }
  }
  without_room_.insert(without_room_.end(), waiting.begin(), waiting.end());
  return {};
}

base::Status PlanRun::on_timeout(RunContext& context) {
  for (const StepId id : std::exchange(without_room_, {})) {
    if (base::Status status = send_place(id, MemoryPlace::kNotStaged, context); !status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace spillway::collective
