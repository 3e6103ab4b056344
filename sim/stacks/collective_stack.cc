// SPDX-License-Identifier: Apache-2.0
#include "sim/stacks/collective_stack.h"

#include <algorithm>

#include "sim/packet.h"

namespace spillway::sim {

base::Result<std::unique_ptr<CollectiveStack>> CollectiveStack::make(
    const CollectiveStackConfig& config, PacketPool& pool, Completion on_complete) {
  std::unique_ptr<CollectiveStack> stack(new CollectiveStack(config, pool, std::move(on_complete)));
  base::Result<std::unique_ptr<collective::Engine>> engine =
      collective::Engine::make(config.engine, *stack, *stack);
  if (!engine.ok()) {
    return engine.status();
  }
  stack->engine_ = std::move(engine).value();
  const collective::Group& group = config.engine.group;
  for (std::uint16_t rank = 0; rank < group.world; ++rank) {
    if (rank != group.rank) {
      if (base::Status status = stack->port_.add_peer(rank, base::Instant()); !status.ok()) {
        return status;
      }
    }
  }
  stack->engine_->begin_numbering(stack->port_.endpoint());
  if (group.is_server()) {
    if (base::Status status = stack->engine_->serve(stack->port_.endpoint(), base::Instant());
        !status.ok()) {
      return status;
    }
  }
  return stack;
}

CollectiveStack::CollectiveStack(const CollectiveStackConfig& config, PacketPool& pool,
                                 Completion on_complete)
    : config_(config),
      pool_(pool),
      on_complete_(std::move(on_complete)),
      port_(config.endpoint, config.session) {}

base::Status CollectiveStack::submit(const collective::Operation& operation, std::uint64_t token,
                                     base::Instant now) {
  base::Status status = engine_->admit(operation);
  if (status.ok()) {
    status = engine_->submit(operation, token, port_.endpoint(), now);
  }
  settle(now);
  return status;
}

void CollectiveStack::fail(const base::Status& cause, base::Instant now) {
  engine_->fail(cause, config_.engine.group.rank, wire::FailureCause::kAborted, port_.endpoint(),
                now);
}

void CollectiveStack::leave() {
  port_.endpoint().leave(config_.engine.group.rank, wire::FailureCause::kClosed);
}

void CollectiveStack::settle(base::Instant now) {
  if (is_settling_) {
    return;  // a completion submitted an operation: the outer call continues with it
  }
  is_settling_ = true;
  transport::Event event;
  while (true) {
    if (!jobs_.empty()) {
      collective::ComputeJob& job = *jobs_.front();
      jobs_.pop_front();
      job.run();
      engine_->on_computed(job, port_.endpoint(), now);
    } else if (port_.endpoint().poll_event(event)) {
      engine_->on_event(event, port_.endpoint(), now);
    } else {
      break;
    }
  }
  is_settling_ = false;
}

void CollectiveStack::on_packet(Packet& packet, base::Instant now) {
  port_.on_datagram(pool_.payload(packet), packet.ecn == SPILLWAY_ECN_CE, now);
  settle(now);
}

void CollectiveStack::on_timeout(base::Instant now) {
  port_.endpoint().on_timeout(now);
  settle(now);
  if (engine_->next_timeout() <= now) {
    engine_->on_timeout(port_.endpoint(), now);
  }
  settle(now);
}

base::Instant CollectiveStack::next_timeout() const {
  return std::min(port_.endpoint().next_timeout(), engine_->next_timeout());
}

bool CollectiveStack::poll_transmit(base::Instant now, Packet& packet) {
  transport::Route route;
  const std::size_t size = port_.poll_datagram(now, buffer_, route);
  if (size == 0) {
    return false;
  }
  packet.to = route.peer / config_.ranks_per_host;
  packet.label = std::uint32_t{config_.endpoint.job} << 8 | route.path;
  packet.stack = static_cast<std::uint8_t>(config_.stack + route.peer % config_.ranks_per_host);
  fill_packet(route, {buffer_.data(), size}, pool_, packet);
  return true;
}

}  // namespace spillway::sim
