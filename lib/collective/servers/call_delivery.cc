// SPDX-License-Identifier: Apache-2.0
#include "collective/servers/call_delivery.h"

#include <fmt/format.h>

#include <algorithm>

#include "collective/mismatch.h"

namespace spillway::collective {

wire::MessageId call_id(std::uint64_t sequence, std::uint16_t worker) {
  return {.operation = sequence,
          .signature = 0,
          .piece = 0,
          .source = worker,
          .phase = wire::Phase::kPointToPoint};
}

base::Status CallOutbox::send(const Operation& operation, std::uint64_t sequence,
                              RunContext& context) {
  Outgoing& outgoing = calls_.try_emplace(sequence, operation, config_).first->second;
  const Group& group = config_.group;
  for (std::uint16_t server = group.workers(); server < group.world; ++server) {
    transport::SendOptions options = config_.layout.send_options(
        call_id(sequence, group.rank), kCallBytes, kCallPriority, outgoing.source);
    options.to = server;
    if (base::Status status = messages_.send(options, context); !status.ok()) {
      return status;
    }
    ++outgoing.open;
  }
  return {};
}

void CallOutbox::on_sent(const transport::SendReport& report) {
  messages_.on_sent(report);
  const auto found = calls_.find(report.id.operation);
  if (found != calls_.end() && --found->second.open == 0) {
    calls_.erase(found);
  }
}

void CallOutbox::withdraw(RunContext& context) {
  messages_.withdraw_if(context, [](const transport::MessageKey&) { return true; });
  calls_.clear();
}

CallIntake::CallIntake(const RunConfig& config, std::uint64_t first)
    : config_(config), workers_(config.group.workers()), next_(first) {
  for (Worker& worker : workers_) {
    worker.next_expected = first;
  }
}

// Fewer with many workers: the endpoint's table is above all for data.
std::uint32_t CallIntake::window() const {
  constexpr std::size_t kMaxExpected = 2048;
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(kMaxExpected / workers_.size(), 2, 16));
}

std::uint64_t CallIntake::slowest() const {
  std::uint64_t slowest = UINT64_MAX;
  for (const Worker& worker : workers_) {
    slowest = worker.has_left ? slowest : std::min(slowest, worker.next());
  }
  return slowest;
}

base::Status CallIntake::start(RunContext& context) {
  return expect_more(context);
}

base::Status CallIntake::expect_more(RunContext& context) {
  const std::uint64_t most = slowest() + kMaxAhead;  // means nothing once all have left
  for (std::uint16_t rank = 0; rank < workers_.size(); ++rank) {
    Worker& worker = workers_[rank];
    while (!worker.has_left && worker.next_expected < worker.next() + window() &&
           worker.next_expected < most) {
      const std::uint64_t sequence = worker.next_expected++;
      Expected& expected = worker.expected.try_emplace(sequence, config_).first->second;
      const transport::ReceiveOptions options = config_.layout.receive_options(
          call_id(sequence, rank), kCallBytes, kCallPriority, expected.sink);
      if (base::Status status = messages_.expect(options, context); !status.ok()) {
        return status;
      }
    }
  }
  return {};
}

std::optional<CallFault> CallIntake::compare(const Operation& operation, std::uint64_t sequence,
                                             std::uint16_t caller) {
  const auto [found, is_first] = heard_.try_emplace(sequence, Heard{operation, caller});
  const Heard& first = found->second;
  if (is_first || are_alike(first.operation, operation)) {
    return std::nullopt;
  }
  const wire::Mismatch mismatch{
      .operation = sequence,
      .is_point_to_point = false,
      .calls = {call_text(first.caller, first.operation), call_text(caller, operation)}};
  return CallFault{{base::StatusCode::kMismatch, mismatch_sentence(mismatch, config_.group)},
                   caller,
                   wire::FailureCause::kMismatch,
                   mismatch};
}

std::optional<CallFault> CallIntake::on_received(const transport::ReceiveReport& report,
                                                 RunContext& context) {
  messages_.on_received(report);
  const std::uint16_t caller = report.id.source;
  Worker& worker = workers_[caller];
  const auto expected = worker.expected.find(report.id.operation);
  if (expected == worker.expected.end()) {
    return std::nullopt;  // of a worker that has left
  }
  const base::Result<Operation> call = parse_call(expected->second.bytes);
  worker.expected.erase(expected);
  if (!call.ok()) {
    return CallFault{
        {call.status().code(), fmt::format("rank {}: {}", caller, call.status().message())},
        caller};
  }
  if (std::optional<CallFault> fault = compare(*call, report.id.operation, caller)) {
    return fault;
  }
  context.endpoint.retire_before(caller, worker.next());
  heard_.erase(heard_.begin(), heard_.lower_bound(std::min(slowest(), next_)));
  // If a worker is dead, the event that says so is on its way.
  if (base::Status status = expect_more(context);
      !status.ok() && status.code() != base::StatusCode::kPeerFailed) {
    return CallFault{status, config_.group.rank, wire::FailureCause::kInternal};
  }
  return std::nullopt;
}

std::optional<OpenedCall> CallIntake::next() {
  const auto found = heard_.find(next_);
  if (found == heard_.end()) {
    return std::nullopt;
  }
  return OpenedCall{found->second.operation, next_++, found->second.caller};
}

void CallIntake::leave(std::uint16_t rank, RunContext& context) {
  if (rank >= workers_.size()) {
    return;
  }
  workers_[rank].has_left = true;
  messages_.withdraw_if(context,
                        [rank](const transport::MessageKey& key) { return key.peer == rank; });
  workers_[rank].expected.clear();
}

bool CallIntake::has_everybody_left() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.has_left; });
}

void CallIntake::withdraw(RunContext& context) {
  messages_.withdraw_if(context, [](const transport::MessageKey&) { return true; });
}

}  // namespace spillway::collective
