// SPDX-License-Identifier: Apache-2.0
#include "collective/engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "collective/tolerant/tolerant_run.h"

namespace spillway::collective {
namespace {

constexpr std::uint64_t kPointToPointKey = std::uint64_t{1} << 63;

}  // namespace

base::Result<std::unique_ptr<Engine>> Engine::make(const EngineConfig& config,
                                                   const wire::PacketAuth& auth, ComputePool& pool,
                                                   EngineListener& listener) {
  const base::Result<ByteLayout> layout = ByteLayout::make(config.packet_limits, config.keyed);
  if (!layout.ok()) {
    return layout.status();
  }
  return std::unique_ptr<Engine>(new Engine(config, *layout, auth, pool, listener));
}

Engine::Engine(const EngineConfig& config, const ByteLayout& layout, const wire::PacketAuth& auth,
               ComputePool& pool, EngineListener& listener)
    : config_(config),
      run_config_{config.group, config.job, layout, &auth, config.memory},
      pool_(pool),
      listener_(listener),
      scratch_(config.limits.scratch_kept),
      pairs_(config.group.world) {
  if (config.group.is_server()) {
    intake_ = std::make_unique<CallIntake>(run_config_);
  } else if (config.group.servers > 0) {
    outbox_ = std::make_unique<CallOutbox>(run_config_);
  }
}

Engine::Key Engine::point_to_point_key(std::uint16_t peer, bool sends, std::uint32_t number) {
  return kPointToPointKey | std::uint64_t{sends} << 62 | std::uint64_t{peer} << 32 | number;
}

Engine::Key Engine::key_of(const wire::MessageId& id, std::uint16_t peer, bool sends) {
  return id.phase == wire::Phase::kPointToPoint ? point_to_point_key(peer, sends, id.operation)
                                                : Key{id.operation};
}

base::Status Engine::validate_here(const Operation& operation) const {
  if (base::Status status = validate(operation, config_.group); !status.ok()) {
    return status;
  }
  constexpr std::size_t kMaxPieces = UINT16_MAX;  // of a shard: they are numbered in packets
  if (uses_servers(operation, config_.group) &&
      operation.bytes() / config_.group.servers > kMaxPieces * config_.plan.piece_bytes) {
    return base::invalid_argument(
        fmt::format("{} elements are too many for one operation; split it", operation.count));
  }
  return {};
}

base::Status Engine::admit(const Operation& operation) const {
  if (config_.group.is_server()) {
    return base::invalid_argument(
        "a parameter server calls no operations: it does what the workers call");
  }
  return validate_here(operation);
}

base::Status Engine::submit(const Operation& operation, std::uint64_t token,
                            transport::Endpoint& endpoint, base::Instant now) {
  if (waiting_.size() == config_.limits.waiting) {
    return {base::StatusCode::kLimitExceeded,
            fmt::format("{} operations wait already; wait for some to end", waiting_.size())};
  }
  enqueue({operation, token, next_sequence_, now}, endpoint, now);
  return {};
}

void Engine::enqueue(const Waiting& waiting, transport::Endpoint& endpoint, base::Instant now) {
  if (failure_) {
    complete_failed(waiting, now);
    return;
  }
  const Operation& operation = waiting.operation;
  if (!is_point_to_point(operation.kind)) {
    next_sequence_ = waiting.sequence + 1;
    waiting_.push_back(waiting);
    start_waiting(endpoint, now);
    return;
  }
  const bool sends = operation.kind == Kind::kSend;
  PairCounters& pair = pairs_[operation.root];
  Waiting numbered = waiting;
  numbered.sequence = sends ? pair.sent++ : pair.received++;
  start(numbered, point_to_point_key(operation.root, sends, numbered.sequence), endpoint, now);
}

// In order, as long as there is room. One always runs, however large it is.
void Engine::start_waiting(transport::Endpoint& endpoint, base::Instant now) {
  while (!waiting_.empty() && !failure_) {
    const bool has_room =
        running_.size() < config_.limits.running && messages_ < config_.limits.messages;
    if (!has_room && !running_.empty()) {
      return;
    }
    const Waiting waiting = waiting_.front();
    waiting_.pop_front();
    start(waiting, waiting.sequence, endpoint, now);
  }
}

base::Result<std::unique_ptr<OperationRun>> Engine::make_run(const Operation& operation, Key key) {
  if (operation.tolerance && config_.group.world > 1 && operation.count > 0) {
    return make_tolerant_run(operation, key);
  }
  return std::unique_ptr<OperationRun>(std::make_unique<PlanRun>(
      operation, key, make_plan(operation, config_.group, config_.plan), run_config_, scratch_));
}

base::Result<std::unique_ptr<OperationRun>> Engine::make_tolerant_run(const Operation& operation,
                                                                      Key key) {
  base::Result<TolerantLayout> layout =
      TolerantLayout::make(operation, config_.group, static_cast<std::uint32_t>(key),
                           config_.packet_limits, config_.keyed, config_.plan.piece_bytes);
  if (!layout.ok()) {
    return layout.status();
  }
  const Tolerance& tolerance = *operation.tolerance;
  const std::uint64_t alike = std::uint64_t{operation.count} << 16 |
                              std::uint64_t{tolerance.precision} << 8 | tolerance.gather_precision;
  return std::unique_ptr<OperationRun>(
      std::make_unique<TolerantRun>(operation, key, std::move(layout).value(), run_config_,
                                    paces_.of(alike), residual_of(operation)));
}

// What the tensor is owed; zeros where it is new or has another length than before. Nothing while
// another operation of the same tensor still uses it.
std::span<float> Engine::residual_of(const Operation& operation) {
  const std::uint64_t tensor = operation.tolerance->feedback_tensor;
  const bool is_full = residuals_.size() >= config_.limits.feedback_tensors;
  const bool is_used = std::any_of(running_.begin(), running_.end(), [tensor](const auto& entry) {
    const std::optional<Tolerance>& other = entry.second.run->operation().tolerance;
    return !entry.second.is_complete && other && other->feedback_tensor == tensor;
  });
  if (tensor == 0 || is_used || (is_full && !residuals_.contains(tensor))) {
    return {};
  }
  std::vector<float>& residual = residuals_[tensor];
  if (residual.size() != operation.count) {
    residual.assign(operation.count, 0.0F);
  }
  return residual;
}

void Engine::start(const Waiting& waiting, Key key, transport::Endpoint& endpoint,
                   base::Instant now) {
  base::Result<std::unique_ptr<OperationRun>> run = make_run(waiting.operation, key);
  if (!run.ok()) {
    fail(run.status(), config_.group.rank, wire::FailureCause::kInternal, endpoint, now);
    complete_failed(waiting, now);
    return;
  }
  Active& active = running_[key];
  active.run = std::move(run).value();
  active.token = waiting.token;
  OperationReport& report = active.run->report();
  report.queued = waiting.queued;
  report.started = now;
  messages_ += message_cost(*active.run);
  RunContext context = this->context(endpoint, now);
  if (const base::Status called = call_servers(waiting, context); !called.ok()) {
    after(key, called, endpoint, now);
    return;
  }
  after(key, active.run->start(context), endpoint, now);
  for (const std::uint16_t peer : closed_) {
    fail_what_needs(peer, endpoint, now);
  }
}

std::size_t Engine::message_cost(const OperationRun& run) const {
  return run.message_count() + (outbox_ ? config_.group.servers : 0U);
}

// What follows from a call into a run: its end, the end of everything, or nothing.
void Engine::after(Key key, const base::Status& status, transport::Endpoint& endpoint,
                   base::Instant now) {
  if (status.code() == base::StatusCode::kPeerFailed) {
    return;  // the event that names the peer is on its way
  }
  if (!status.ok()) {
    fail(status, config_.group.rank, wire::FailureCause::kInternal, endpoint, now);
    return;
  }
  const auto found = running_.find(key);
  if (found == running_.end() || !found->second.run->is_done()) {
    return;
  }
  const bool is_idle = found->second.run->is_idle();
  if (!found->second.is_complete) {
    complete(found->second, now);
  }
  if (is_idle) {
    retire(key, endpoint, now);
  }
}

void Engine::complete(Active& active, base::Instant now) {
  active.is_complete = true;
  OperationReport& report = active.run->report();
  report.finished = now;
  listener_.on_complete(active.token, {}, report);
}

void Engine::retire(Key key, transport::Endpoint& endpoint, base::Instant now) {
  const auto found = running_.find(key);
  messages_ -= message_cost(*found->second.run);
  running_.erase(found);
  tell_floor(key, endpoint);
  if (running_.empty() && is_watching_) {
    is_watching_ = false;
    endpoint.watch_everybody(false, now);
  }
  start_waiting(endpoint, now);
}

// Tells the endpoint below which number everything is over.
void Engine::tell_floor(Key key, transport::Endpoint& endpoint) {
  if (!is_point_to_point_key(key)) {
    const bool some_run = !running_.empty() && !is_point_to_point_key(running_.begin()->first);
    const std::uint32_t next_to_start =
        waiting_.empty() ? next_sequence_ : waiting_.front().sequence;
    endpoint.retire_before(some_run ? static_cast<std::uint32_t>(running_.begin()->first)
                                    : next_to_start);
    return;
  }
  const auto peer = static_cast<std::uint16_t>(key >> 32);
  PairCounters& pair = pairs_[peer];
  while (pair.received_over < pair.received &&
         !running_.contains(point_to_point_key(peer, false, pair.received_over))) {
    ++pair.received_over;
  }
  endpoint.retire_before(peer, pair.received_over);
}

base::Instant Engine::next_timeout() const {
  if (!failure_ && config_.memory != nullptr && config_.memory->failure()) {
    return base::Instant();
  }
  base::Instant next = transport::kNever;
  for (const auto& [key, active] : running_) {
    const base::Instant started = active.run->report().started;
    next = std::min(next, active.run->next_timeout());
    if (!active.is_complete) {
      next = std::min(next, started + config_.operation_timeout);
    }
    if (!is_watching_) {
      next = std::min(next, started + config_.watch_after);
    }
  }
  return next;
}

void Engine::on_timeout(transport::Endpoint& endpoint, base::Instant now) {
  if (config_.memory != nullptr && config_.memory->failure()) {
    const MemoryFailure& failure = *config_.memory->failure();
    fail(failure.status, failure.peer, wire::FailureCause::kPeerDead, endpoint, now);
    return;
  }
  watch(endpoint, now);
  std::vector<Key> due;
  for (const auto& [key, active] : running_) {
    const OperationReport& report = active.run->report();
    if (!active.is_complete && now >= report.started + config_.operation_timeout) {
      const std::vector<std::uint16_t> ranks = active.run->awaited();
      fail({base::StatusCode::kTimedOut,
            fmt::format("operation {} ({}) has not ended after {:g} s; it waits for rank {}",
                        report.sequence, describe(active.run->operation()),
                        static_cast<double>(config_.operation_timeout.count()) * 1e-9,
                        fmt::join(ranks, ", "))},
           ranks.empty() ? config_.group.rank : ranks.front(), wire::FailureCause::kTimeout,
           endpoint, now);
      return;
    }
    if (active.run->next_timeout() <= now) {
      due.push_back(key);
    }
  }
  for (const Key key : due) {
    if (const auto found = running_.find(key); found != running_.end()) {
      RunContext context = this->context(endpoint, now);
      after(key, found->second.run->on_timeout(context), endpoint, now);
    }
  }
}

void Engine::watch(transport::Endpoint& endpoint, base::Instant now) {
  const bool is_old = std::any_of(running_.begin(), running_.end(), [&](const auto& entry) {
    return now - entry.second.run->report().started >= config_.watch_after;
  });
  if (is_old && !is_watching_) {
    is_watching_ = true;
    endpoint.watch_everybody(true, now);
  }
}

std::size_t Engine::memory_bytes() const {
  std::size_t bytes = scratch_.kept_bytes() + scratch_.used_bytes();
  for (const auto& [tensor, residual] : residuals_) {
    bytes += residual.size() * sizeof(float);
  }
  return bytes;
}

}  // namespace spillway::collective
