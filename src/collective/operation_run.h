// SPDX-License-Identifier: Apache-2.0
//
// An operation under way at one rank: handed what happens, it does what comes next. The engine
// owns it, tells it of its own messages and jobs only, and asks after each call whether it is done.
//
// One thread, the engine's. A run may be destroyed once it is idle: no message of its own is in the
// endpoint and no job of its own in the pool.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "collective/compute.h"
#include "collective/report.h"
#include "transport/endpoint.h"

namespace spillway::collective {

// What a run works with during one call.
struct RunContext {
  transport::Endpoint& endpoint;
  ComputePool& pool;
  base::Instant now;
};

class OperationRun {
 public:
  virtual ~OperationRun() = default;

  virtual base::Status start(RunContext& context) = 0;
  virtual base::Status on_received(const transport::ReceiveReport& report, RunContext& context) = 0;
  virtual base::Status on_sent(const transport::SendReport& report, RunContext& context) = 0;
  virtual base::Status on_computed(std::uint32_t tag, RunContext& context) = 0;
  // When on_timeout() is due; transport::kNever for never.
  virtual base::Instant next_timeout() const { return transport::kNever; }
  virtual base::Status on_timeout(RunContext& /*context*/) { return {}; }

  // Its result is where it belongs, and the caller's memory is the caller's again.
  virtual bool is_done() const = 0;
  // Nothing of it is in the endpoint or the pool any more.
  virtual bool is_idle() const = 0;
  // Takes its messages back. Jobs go on until they end.
  virtual void withdraw(RunContext& context) = 0;

  // Messages it may have in the endpoint at one time.
  virtual std::size_t message_count() const = 0;
  // Ranks from which something is still missing.
  virtual std::vector<std::uint16_t> awaited() const = 0;
  // Whether it cannot end without that rank from here on.
  virtual bool needs(std::uint16_t peer) const = 0;
  virtual OperationReport& report() = 0;
};

}  // namespace spillway::collective
