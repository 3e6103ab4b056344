// SPDX-License-Identifier: Apache-2.0
//
// Carries out a plan exactly: every message arrives whole, every sum is formed in the order the
// plan says. Bytes go from the caller's memory to the wire and from the wire to where they belong.
#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "collective/exact/plan.h"
#include "collective/exact/scratch_pool.h"
#include "collective/operation_run.h"

namespace spillway::collective {

class PlanRun final : public OperationRun {
 public:
  // All but the plan outlive the run.
  PlanRun(const Operation& operation, std::uint64_t key, Plan plan, const RunConfig& config,
          ScratchPool& scratch);
  ~PlanRun() override;

  base::Status start(RunContext& context) override;
  base::Status on_received(const transport::ReceiveReport& report, RunContext& context) override;
  base::Status on_sent(const transport::SendReport& report, RunContext& context) override;
  base::Status on_computed(std::uint32_t tag, RunContext& context) override;

  bool is_done() const override { return steps_done_ == plan_.steps.size(); }
  bool is_idle() const override { return jobs_out_ == 0 && messages_out_ == 0; }
  void withdraw(RunContext& context) override;

  std::size_t message_count() const override { return message_count_; }
  std::vector<std::uint16_t> awaited() const override;
  bool needs(std::uint16_t peer) const override;

 private:
  enum class State : std::uint8_t { kWaiting, kRunning, kDone };

  class StepJob final : public ComputeJob {
   public:
    StepJob(const PlanRun& owner, const Step& step) : owner_(owner), step_(step) {}
    void run() override;

   private:
    const PlanRun& owner_;
    const Step& step_;
  };

  wire::MessageId id_of(const Step& step) const;
  std::uint8_t* memory(const Span& span) const;
  base::Status launch(StepId id, RunContext& context);
  base::Status launch_send(StepId id, RunContext& context);
  base::Status launch_receive(StepId id, RunContext& context);
  bool is_local(const Step& step) const;
  std::uint32_t packets_of(const Step& step) const;
  base::Status finish(StepId id, RunContext& context);
  StepId step_of(const wire::MessageId& id, std::uint16_t peer) const;

  Plan plan_;
  ScratchPool& pool_;
  ScratchPool::Buffer scratch_;
  std::vector<State> states_;
  std::vector<std::uint32_t> waits_;  // per step, steps it still waits for
  std::unordered_map<std::uint64_t, StepId> by_message_;
  std::deque<ByteSource> sources_;
  std::deque<ByteSink> sinks_;
  std::deque<LocalSource> local_sources_;
  std::deque<LocalSink> local_sinks_;
  std::deque<StepJob> jobs_;
  std::size_t message_count_ = 0;
  std::size_t steps_done_ = 0;
  std::uint32_t jobs_out_ = 0;
  std::uint32_t messages_out_ = 0;
  bool is_withdrawn_ = false;
};

}  // namespace spillway::collective
