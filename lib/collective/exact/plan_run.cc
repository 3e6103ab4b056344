// SPDX-License-Identifier: Apache-2.0
#include "collective/exact/plan_run.h"

#include <algorithm>
#include <cstring>

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
  if (step_.kind == Step::Kind::kBring) {
    failure = operation.device->bring(step_.span.offset, step_.span.bytes);
    return;
  }
  if (step_.kind == Step::Kind::kTakeBack) {
    failure = operation.device->take_back(step_.span.offset, step_.span.bytes);
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

PlanRun::PlanRun(const Operation& operation, std::uint64_t key, Plan plan, const RunConfig& config,
                 ScratchPool& scratch)
    : OperationRun(operation, key, config),
      plan_(std::move(plan)),
      pool_(scratch),
      states_(plan_.steps.size(), State::kWaiting),
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
    case Step::Kind::kBring:
    case Step::Kind::kTakeBack:
      break;
  }
  StepJob& job = jobs_.emplace_back(*this, step);
  if (step.kind == Step::Kind::kBring || step.kind == Step::Kind::kTakeBack) {
    job.part = ComputeJob::Part::kCopy;
    job.sleeps = true;
  }
  hand_out(job, id, context);
  ++jobs_out_;
  return {};
}

base::Status PlanRun::launch_send(StepId id, RunContext& context) {
  const Step& step = plan_.steps[id];
  return is_local(step) ? send_place(id, context) : send_bytes(id, id_of(step), context);
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
  return expect({message, config_.layout.packets(step.span.bytes), sink_of(step)}, context);
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
  base::Status status = context.endpoint.send(options, context.now);
  messages_out_ += status.ok() ? 1 : 0;
  return status;
}

base::Status PlanRun::expect(const Incoming& message, RunContext& context) {
  transport::ReceiveOptions options;
  options.id = message.id;
  options.packets = message.packets;
  options.packet_bytes = config_.layout.packet_bytes;
  options.planes = ByteLayout::kPlanes;
  options.priority = operation().priority;
  options.loss = ByteLayout::kNoLoss;
  options.sink = &message.sink;
  base::Status status = context.endpoint.expect(options, context.now);
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
  return is_place(id) ? on_place_received(id, context) : finish(id, context);
}

base::Status PlanRun::on_sent(const transport::SendReport& report, RunContext& context) {
  --messages_out_;
  report_.packets_sent += report.transmitted;
  report_.packets_repeated += report.transmitted - std::min(report.transmitted, report.packets);
  const StepId id = step_of(report.id, report.to);
  report_.wire_bytes_sent +=
      std::uint64_t{report.transmitted} *
      config_.layout.wire_bytes(is_place(id) ? sizeof(MemoryPlace) : plan_.steps[id].span.bytes) /
      report.packets;
  return is_place(id) ? on_place_sent(id, context) : finish(id, context);
}

base::Status PlanRun::on_computed(std::uint32_t tag, RunContext& context) {
  --jobs_out_;
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
      context.endpoint.withdraw(id_of(step), step.peer, context.now);
    } else if (states_[id] == State::kFollowing) {
      context.endpoint.withdraw(second_id_of(step), step.peer, context.now);
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
    if (states_[id] != State::kWaiting && states_[id] != State::kDone &&
        is_message(plan_.steps[id])) {
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
    if (states_[id] != State::kDone && is_message(step) && step.peer == peer) {
      return true;
    }
  }
  return false;
}

}  // namespace spillway::collective
