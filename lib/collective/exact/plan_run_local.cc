// SPDX-License-Identifier: Apache-2.0
//
// Messages of a plan between ranks of one machine. Such a message is one packet with a place in the
// sender's segment (peer_memory.h). If the sender has none to give, the packet says so, and the
// bytes follow in a second message, through the network.
//
// Room: a send that finds none waits until one of this run's own blocks comes back, but not for
// long: what was staged may be for ranks that wait for this very send, or have not called the
// operation yet. Then it goes through the network, as it does at once if this run has nothing
// staged. So room is a matter of speed, and no cycle of waiting can form.
#include <algorithm>
#include <utility>

#include "collective/exact/plan_run.h"

namespace spillway::collective {
namespace {

using wire::Phase;

// For fewer bytes a packet is as quick as two copies.
constexpr std::size_t kWorthwhile = 4096;
// How long a send waits while nothing comes back.
constexpr base::Duration kRoomPatience = base::milliseconds(5);
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
  return config_.memory != nullptr && config_.memory->is_near(step.peer) &&
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
    return send_place(id, MemoryPlace::kNowhere, context);
  }
  const std::optional<std::uint64_t> offset = staged_.take(step.span, memory(step.span));
  if (offset || staged_.empty()) {
    return send_place(id, offset.value_or(MemoryPlace::kNowhere), context);
  }
  if (without_room_.empty()) {
    room_due_ = context.now + kRoomPatience;
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
    if (base::Status status = send_place(id, MemoryPlace::kNowhere, context); !status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace spillway::collective
