// SPDX-License-Identifier: Apache-2.0
#include "collective/levels/message_scope.h"

#include <utility>

namespace spillway::collective {

base::Status RunContext::expect(const transport::ReceiveOptions& options) {
  return scope != nullptr ? scope->expect(options, *this) : endpoint.expect(options, now);
}

base::Status RunContext::send(const transport::SendOptions& options) {
  return scope != nullptr ? scope->send(options, *this) : endpoint.send(options, now);
}

void RunContext::withdraw(const wire::MessageId& id, std::uint16_t peer) {
  if (scope != nullptr) {
    scope->withdraw(id, peer, *this);
  } else {
    endpoint.withdraw(id, peer, now);
  }
}

void RunContext::cancel(const wire::MessageId& id) {
  if (scope != nullptr) {
    scope->cancel(id, *this);
  } else {
    endpoint.cancel(id, now);
  }
}

wire::MessageId MessageScope::outward(wire::MessageId id) const {
  id.operation = name_.operation;
  id.signature = name_.signature;
  id.piece = static_cast<std::uint16_t>(id.piece * name_.parts + name_.part);
  id.source = members_.rank(id.source);
  return id;
}

// Only members send messages that the part expects.
wire::MessageId MessageScope::inward(const wire::MessageId& id) const {
  wire::MessageId own = id;
  own.operation = own_.operation;
  own.signature = own_.signature;
  own.piece = static_cast<std::uint16_t>(id.piece / name_.parts);
  own.source = members_.member(id.source).value();
  return own;
}

base::Status MessageScope::expect(transport::ReceiveOptions options, RunContext& context) {
  const wire::MessageId id = outward(options.id);
  std::unique_ptr<NamingSink>& sink = sinks_[id];
  sink = std::make_unique<NamingSink>(*options.sink, options.id);
  options.id = id;
  options.sink = sink.get();
  return context.endpoint.expect(options, context.now);
}

base::Status MessageScope::send(transport::SendOptions options, RunContext& context) {
  options.id = outward(options.id);
  options.to = members_.rank(options.to);
  return context.endpoint.send(options, context.now);
}

void MessageScope::withdraw(const wire::MessageId& id, std::uint16_t peer, RunContext& context) {
  const wire::MessageId named = outward(id);
  context.endpoint.withdraw(named, members_.rank(peer), context.now);
  sinks_.erase(named);
}

void MessageScope::cancel(const wire::MessageId& id, RunContext& context) {
  context.endpoint.cancel(outward(id), context.now);
}

transport::ReceiveReport MessageScope::inward(const transport::ReceiveReport& report) {
  sinks_.erase(report.id);
  transport::ReceiveReport own = report;
  own.id = inward(report.id);
  return own;
}

transport::SendReport MessageScope::inward(const transport::SendReport& report) const {
  transport::SendReport own = report;
  own.id = inward(report.id);
  own.to = members_.member(report.to).value();
  return own;
}

}  // namespace spillway::collective
