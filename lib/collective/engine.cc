// SPDX-License-Identifier: Apache-2.0
#include "collective/engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

namespace spillway::collective {
namespace {

// Running out of memory is an operation's error like any other.
template <typename Call>
base::Status guarded(const Operation& operation, const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return {base::StatusCode::kLimitExceeded,
          fmt::format("there is no memory left for {} of {} bytes; use smaller tensors or fewer at "
                      "once",
                      describe(operation), operation.bytes())};
}

// For large exact all-reduces, the usual one first. Ranks of a host share its link, so that a
// direct exchange is several times slower: it is not tried where hosts are known.
std::vector<Algorithm> plans_to_try(const Group& group, const PlanOptions& plan) {
  if (level_factors(group, plan).empty()) {
    return {Algorithm::kAutomatic};
  }
  if (plan.host_ranks > 1) {
    return {Algorithm::kHierarchical};
  }
  if (has_near_ranks(group, plan)) {
    return {Algorithm::kHierarchical, Algorithm::kDirect};
  }
  return {Algorithm::kDirect, Algorithm::kHierarchical};
}

}  // namespace

base::Result<std::unique_ptr<Engine>> Engine::make(const EngineConfig& config, ComputePool& pool,
                                                   EngineListener& listener) {
  const base::Result<ByteLayout> layout = ByteLayout::make(config.packet_limits);
  if (!layout.ok()) {
    return layout.status();
  }
  return std::unique_ptr<Engine>(new Engine(config, *layout, pool, listener));
}

Engine::Engine(const EngineConfig& config, const ByteLayout& layout, ComputePool& pool,
               EngineListener& listener)
    : config_(config),
      runs_(config, layout),
      pool_(pool),
      listener_(listener),
      next_sequence_(config.first_operation),
      sends_to_(config.group.world, SendsTo{config.first_operation, 0, {}}),
      matching_(config.group.world, config.first_operation) {
  if (config.group.servers == 0 && config.group.world > 1) {
    ways_ = std::make_unique<Ways>(config.group.world, config.limits.survey_bytes,
                                   plans_to_try(config.group, runs_.plan()), config.may_stream);
  }
  if (config.group.is_server()) {
    inbox_ = std::make_unique<CallInbox>(runs_.config(), config.first_operation);
  } else if (config.group.servers > 0) {
    outbox_ = std::make_unique<CallOutbox>(runs_.config());
  }
}

Engine::Key Engine::point_to_point_key(std::uint16_t peer, bool sends, std::uint64_t number) {
  return kPairKey | std::uint64_t{sends} << 62 | std::uint64_t{peer} << kPairNumberBits | number;
}

Engine::Key Engine::key_of(const wire::MessageId& id, std::uint16_t peer, bool sends) {
  return id.phase == wire::Phase::kPointToPoint ? point_to_point_key(peer, sends, id.operation)
                                                : Key{id.operation};
}

void Engine::begin_numbering(transport::Endpoint& endpoint) {
  if (is_numbering_) {
    return;
  }
  is_numbering_ = true;
  endpoint.retire_before(config_.first_operation);
  for (std::uint16_t rank = 0; rank < config_.group.world; ++rank) {
    endpoint.retire_before(rank, config_.first_operation);
  }
}

base::Status Engine::submit(const Operation& operation, std::uint64_t token,
                            transport::Endpoint& endpoint, base::Instant now) {
  const bool is_paired = is_point_to_point(operation.kind);
  const std::size_t waiting =
      is_paired ? running_.size() - group_running_ + held_sends_ : waiting_.size();
  if (waiting >= (is_paired ? config_.limits.pairs : config_.limits.waiting)) {
    return {base::StatusCode::kLimitExceeded,
            fmt::format("{} operations wait already; wait for some to end", waiting)};
  }
  enqueue({operation, token, next_sequence_, now}, endpoint, now);
  return {};
}

void Engine::enqueue(const Waiting& waiting, transport::Endpoint& endpoint, base::Instant now) {
  if (failure_) {
    fail_waiting(waiting, now);
    return;
  }
  const Operation& operation = waiting.operation;
  begin_numbering(endpoint);
  if (!is_point_to_point(operation.kind)) {
    next_sequence_ = waiting.sequence + 1;
    waiting_.push_back(waiting);
    start_waiting(endpoint, now);
    return;
  }
  start_point_to_point(waiting, endpoint, now);
}

// True while a running operation uses the tensor's residual.
bool Engine::uses_residual_of(std::uint64_t tensor) const {
  return std::any_of(running_.begin(), running_.end(), [tensor](const auto& entry) {
    const std::optional<Tolerance>& other = entry.second.run->operation().tolerance;
    return !entry.second.is_complete && other && other->feedback_tensor == tensor;
  });
}

// For operations without trials of their own. They profit from what all-reduces found out about
// code, because each message says itself whether it is code.
Ways::Choice Engine::usual_choice() const {
  return {.way = {.form = ways_ ? ways_->way(Traffic::kExact).form : ByteForm::kPlain}};
}

void Engine::start(const Waiting& waiting, Key key, transport::Endpoint& endpoint,
                   base::Instant now) {
  std::unique_ptr<OperationRun> run;
  const Operation& operation = waiting.operation;
  const bool has_choice = is_surveyed(operation);
  const Ways::Choice choice =
      has_choice ? ways_->begin(traffic_of(operation), operation.bytes()) : usual_choice();
  const base::Status status = guarded(operation, [&]() -> base::Status {
    const std::optional<Tolerance>& tolerance = operation.tolerance;
    const bool is_residual_free = tolerance && !uses_residual_of(tolerance->feedback_tensor);
    base::Result<std::unique_ptr<OperationRun>> made =
        runs_.make(operation, key, choice, is_residual_free);
    if (made.ok()) {
      run = std::move(made).value();
    }
    return made.status();
  });
  if (!status.ok()) {
    fail(status, config_.group.rank, wire::FailureCause::kInternal, endpoint, now);
    fail_waiting(waiting, now);
    return;
  }
  if (has_choice) {
    running_[key].choice = choice;
    run->report().carrier = choice.way.carrier;
    if (config_.may_stream && !std::exchange(has_asked_for_streams_, true)) {
      listener_.on_streams_wanted();
    }
  }
  begin(waiting, key, std::move(run), endpoint, now);
  if (choice.is_survey) {
    survey(key, endpoint, now);
  }
}

void Engine::begin(const Waiting& waiting, Key key, std::unique_ptr<OperationRun> run,
                   transport::Endpoint& endpoint, base::Instant now) {
  Active& active = running_[key];
  active.run = std::move(run);
  active.token = waiting.token;
  OperationReport& report = active.run->report();
  report.queued = waiting.queued;
  report.started = now;
  count_in(key, *active.run);
  RunContext context = this->context(endpoint, now);
  if (const base::Status called = call_servers(waiting, context); !called.ok()) {
    after(key, called, endpoint, now);
    return;
  }
  after(key, guarded(waiting.operation, [&] { return active.run->start(context); }), endpoint, now);
  for (const Closed& closed : closed_) {
    notify_runs_of(closed, endpoint, now);
  }
}

// Acts on what a call into a run returned: ends the run, ends everything, or does nothing.
void Engine::after(Key key, const base::Status& status, transport::Endpoint& endpoint,
                   base::Instant now) {
  if (status.code() == base::StatusCode::kPeerFailed) {
    return;  // the event that names the peer follows
  }
  if (!status.ok()) {
    fail(status, config_.group.rank, wire::FailureCause::kInternal, endpoint, now);
    return;
  }
  const auto found = running_.find(key);
  if (found == running_.end() || !found->second.run->is_done()) {
    return;
  }
  const bool is_idle = found->second.is_idle();
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
  if (active.choice) {
    const Operation& operation = active.run->operation();
    ways_->on_end(traffic_of(operation), *active.choice, operation.bytes(), report.started, now);
  }
  count_parts(active, report);
  listener_.on_complete(active.token, {}, report);
}

void Engine::count_job(Active& active, const ComputeJob& job, base::Instant now) {
  PartTimes& parts = active.run->report().parts;
  switch (job.part) {
    case ComputeJob::Part::kEncode:
      parts.encode += job.took;
      break;
    case ComputeJob::Part::kDecode:
      parts.decode += job.took;
      break;
    case ComputeJob::Part::kCopy:
      parts.waits += job.took;
      break;
  }
  if (!active.first_message && job.part != ComputeJob::Part::kDecode) {
    active.first_message = now;
  }
}

// For jobs on a device, the device's own times count; what the jobs took beyond is waiting.
void Engine::count_parts(const Active& active, OperationReport& report) {
  PartTimes& parts = report.parts;
  if (const auto& device = report.operation.device) {
    const PartTimes there = device->times();
    base::Duration jobs = parts.waits;
    if (report.operation.tolerance) {
      jobs += parts.encode + parts.decode;
      parts.encode = there.encode;
      parts.decode = there.decode;
      report.device_bytes = report.operation.bytes();
    }
    parts.to_host = there.to_host;
    parts.to_device = there.to_device;
    parts.waits = std::max(base::Duration(),
                           jobs - there.encode - there.to_host - there.to_device - there.decode);
  }
  parts.exchange = std::max(base::Duration(),
                            active.last_message - active.first_message.value_or(report.started));
}

void Engine::retire(Key key, transport::Endpoint& endpoint, base::Instant now) {
  const auto found = running_.find(key);
  count_out(key, *found->second.run);
  std::optional<std::uint16_t> sent_to;
  if (is_numbered_send(key)) {
    sent_to = found->second.run->operation().root;
  }
  running_.erase(found);
  retire_in_endpoint(key, endpoint);
  if (running_.empty() && is_watching_) {
    is_watching_ = false;
    endpoint.watch_all_peers(false, now);
  }
  if (is_point_to_point_key(key)) {
    use_room_for_pairs(sent_to, endpoint, now);
  } else {
    start_waiting(endpoint, now);
  }
}

// Tells the endpoint that nothing of the operation is needed any more.
void Engine::retire_in_endpoint(Key key, transport::Endpoint& endpoint) {
  if (!is_point_to_point_key(key)) {
    endpoint.retire(key);
  } else if (is_numbered_receive(key)) {
    const auto peer = static_cast<std::uint16_t>(key >> kPairNumberBits);
    endpoint.retire_before(peer, matching_.finish(peer, operation_number(key)));
  }
}

base::Duration Engine::timeout_of(const OperationRun& run) const {
  const base::Duration own = run.operation().timeout;
  return own > base::Duration() ? own : config_.operation_timeout;
}

base::Instant Engine::next_timeout() const {
  if (pending_mismatch_) {
    return pending_mismatch_->until;
  }
  if (!failure_ && config_.memory != nullptr && config_.memory->failure()) {
    return base::Instant();
  }
  base::Instant next = transport::kNever;
  for (const auto& [key, active] : running_) {
    const base::Instant started = active.run->report().started;
    next = std::min(next, active.run->next_timeout());
    if (!active.is_complete) {
      next = std::min(next, started + timeout_of(*active.run));
    }
    if (!is_watching_) {
      next = std::min(next, started + config_.watch_after);
    }
  }
  return next;
}

void Engine::on_timeout(transport::Endpoint& endpoint, base::Instant now) {
  if (pending_mismatch_ && now >= pending_mismatch_->until) {
    resolve_mismatch(endpoint);
  }
  if (config_.memory != nullptr && config_.memory->failure()) {
    const MemoryFailure& failure = *config_.memory->failure();
    fail(failure.status, failure.peer, wire::FailureCause::kInternal, endpoint, now);
    return;
  }
  watch(endpoint, now);
  std::vector<Key> due;
  for (const auto& [key, active] : running_) {
    const OperationReport& report = active.run->report();
    const base::Duration timeout = timeout_of(*active.run);
    if (!active.is_complete && now >= report.started + timeout) {
      const std::vector<std::uint16_t> ranks = active.run->awaited();
      fail({base::StatusCode::kTimedOut,
            fmt::format("operation {} ({}) has not ended after {:g} s; it waits for rank {}",
                        report.sequence, describe(active.run->operation()),
                        static_cast<double>(timeout.count()) * 1e-9, fmt::join(ranks, ", "))},
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
    endpoint.watch_all_peers(true, now);
  }
}

}  // namespace spillway::collective
