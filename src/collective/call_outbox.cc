// SPDX-License-Identifier: Apache-2.0
#include "collective/call_outbox.h"

namespace spillway::collective {

wire::MessageId call_id(std::uint32_t sequence, std::uint16_t worker) {
  return {.step = sequence,
          .bucket = 0,
          .shard = 0,
          .source = worker,
          .phase = wire::Phase::kPointToPoint};
}

base::Status CallOutbox::send(const Call& call, std::uint32_t sequence, RunContext& context) {
  Outgoing& outgoing = calls_.try_emplace(sequence, call, setting_).first->second;
  const Group& group = setting_.group;
  for (std::uint16_t server = group.workers(); server < group.world; ++server) {
    transport::SendSpec spec = setting_.layout.send_spec(call_id(sequence, group.rank), kCallBytes,
                                                         kCallPriority, outgoing.source);
    spec.to = server;
    if (base::Status status = messages_.send(spec, context); !status.ok()) {
      return status;
    }
    ++outgoing.open;
  }
  return {};
}

void CallOutbox::on_sent(const transport::SendReport& report) {
  messages_.on_sent(report);
  const auto found = calls_.find(report.id.step);
  if (found != calls_.end() && --found->second.open == 0) {
    calls_.erase(found);
  }
}

void CallOutbox::withdraw(RunContext& context) {
  messages_.withdraw_if(context, [](const transport::MessageKey&) { return true; });
  calls_.clear();
}

}  // namespace spillway::collective
