// SPDX-License-Identifier: Apache-2.0
//
// Carries out a plan exactly: every message arrives whole, every sum is formed in the order the
// plan says. Bytes go from the caller's memory to the wire and from the wire to where they belong,
// or through shared memory if both ranks are on one machine. If a sum adds only
// one message to the caller's own input, and waits for nothing else, it is formed as packets come,
// on the receiving thread.
//
// Messages of floats may travel as code (coded_message.h). A job encodes a span before its messages
// begin, and one decodes each message that came as code, into the memory where it would have come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "collective/byte_payload.h"
#include "collective/exact/coded_message.h"
#include "collective/exact/plan.h"
#include "collective/exact/scratch_pool.h"
#include "collective/operation_run.h"

namespace spillway::collective {

// The spans of its memory that one run has staged for ranks of its machine. A span that goes to
// several ranks is staged once and stays until the last of them has it: plans do not write to what
// they are sending, so one copy serves all. One thread; the destructor releases what is left.

class StagedSpans {
 public:
  // The memory outlives this object; it may be null if take() is never called.
  explicit StagedSpans(PeerMemory* memory) : memory_(memory) {}
  ~StagedSpans() { clear(); }
  StagedSpans(const StagedSpans&) = delete;
  StagedSpans& operator=(const StagedSpans&) = delete;

  // Returns where the span's bytes, which lie at `data`, are staged; nothing if there is no room.
  // Each success must be given back once.
  std::optional<std::uint64_t> take(const Span& span, const std::uint8_t* data) {
    const auto found = blocks_.find(key_of(span));
    if (found != blocks_.end()) {
      ++found->second.uses;
      return found->second.offset;
    }
    const std::optional<std::uint64_t> offset = memory_->stage({data, span.bytes});
    if (offset) {
      blocks_.emplace(key_of(span), Block{*offset, 1});
    }
    return offset;
  }
  void give_back(const Span& span) {
    const auto found = blocks_.find(key_of(span));
    if (found != blocks_.end() && --found->second.uses == 0) {
      memory_->release(found->second.offset);
      blocks_.erase(found);
    }
  }
  void clear() {
    for (const auto& [key, block] : blocks_) {
      memory_->release(block.offset);
    }
    blocks_.clear();
  }
  bool empty() const { return blocks_.empty(); }

 private:
  using Key = std::tuple<Region, std::size_t, std::size_t>;
  struct Block {
    std::uint64_t offset = 0;
    std::uint32_t uses = 0;
  };

  static Key key_of(const Span& span) { return {span.region, span.offset, span.bytes}; }

  PeerMemory* memory_;
  std::map<Key, Block> blocks_;
};

class PlanRun final : public OperationRun {
 public:
  // Runs take these over from earlier ones.
  struct Pools {
    ScratchPool& scratch;
    FloatCoderPool& coders;
  };

  // Everything but the plan outlives the run. `form`: of what this rank sends, where values shrink.
  PlanRun(const Operation& operation, std::uint64_t key, Plan plan, const RunConfig& config,
          const Pools& pools, ByteForm form);
  ~PlanRun() override;

  base::Status start(RunContext& context) override;
  base::Status on_received(const transport::ReceiveReport& report, RunContext& context) override;
  base::Status on_sent(const transport::SendReport& report, RunContext& context) override;
  base::Status on_computed(std::uint32_t tag, RunContext& context) override;
  base::Instant next_timeout() const override {
    return without_room_.empty() ? transport::kNever : room_due_;
  }
  base::Status on_timeout(RunContext& context) override;

  bool is_done() const override { return steps_done_ == plan_.steps.size(); }
  bool is_idle() const override { return jobs_out_ == 0 && messages_out_ == 0; }
  void withdraw(RunContext& context) override;

  std::size_t message_count() const override { return plan_.max_messages; }
  std::vector<std::uint16_t> awaited() const override;
  bool needs(std::uint16_t peer) const override;

 private:
  enum class State : std::uint8_t {
    kWaiting,         // for other steps
    kWaitingForRoom,  // a send, for shared memory
    kEncoding,        // a send whose span becomes code, or waits for that
    kRunning,
    kDecoding,   // a message that came as code
    kFollowing,  // a message whose bytes follow the packet that says so
    kFolding,    // a sum formed as its message comes
    kDone,
  };
  static constexpr std::uint32_t kPlacePackets = 1;

  // Names a message among those with one peer.
  struct MessageName {
    wire::Phase phase;
    std::uint16_t part;
  };
  struct Outgoing {
    wire::MessageId id;
    std::uint32_t packets;
    transport::PayloadSource& source;
  };
  struct Incoming {
    wire::MessageId id;
    std::uint32_t packets;
    transport::PayloadSink& sink;
    bool may_be_shorter = false;
  };

  class StepJob final : public ComputeJob {
   public:
    StepJob(const PlanRun& owner, const Step& step) : owner_(owner), step_(step) {}
    void run() override;

   private:
    const PlanRun& owner_;
    const Step& step_;
  };

  class EncodeJob final : public ComputeJob {
   public:
    EncodeJob(const PlanRun& owner, const Step& step, SpanCode& code)
        : owner_(owner), step_(step), code_(code) {}
    void run() override;

   private:
    const PlanRun& owner_;
    const Step& step_;
    SpanCode& code_;
  };

  class DecodeJob final : public ComputeJob {
   public:
    DecodeJob(const PlanRun& owner, const Step& step, const EitherSink& came)
        : owner_(owner), step_(step), came_(came) {}
    void run() override;

   private:
    const PlanRun& owner_;
    const Step& step_;
    const EitherSink& came_;
  };

  wire::MessageId id_of(const Step& step) const;
  std::uint8_t* memory(const Span& span) const;
  base::Status launch(StepId id, RunContext& context);
  base::Status launch_send(StepId id, RunContext& context);
  base::Status launch_receive(StepId id, RunContext& context);
  base::Status send_bytes(StepId id, const wire::MessageId& message, RunContext& context);
  base::Status expect_bytes(StepId id, const wire::MessageId& message, RunContext& context);
  transport::PayloadSink& sink_of(const Step& step);
  base::Status send_code(StepId id, RunContext& context);
  base::Status on_encoded(StepId id, RunContext& context);
  base::Status on_bytes(StepId id, const transport::ReceiveReport& report, RunContext& context);
  bool may_be_code(const Step& step) const;
  // A send that took its span from codes_.
  bool is_code_send(StepId id) const {
    return form_ == ByteForm::kCode && may_be_code(plan_.steps[id]);
  }
  std::size_t sent_bytes(StepId id);
  base::Status on_bytes_sent(StepId id, RunContext& context);
  StepId fold_of(const Step& receive) const;
  Fold fold(const Step& sum, const Step& receive) const;
  std::size_t average_over(const Step& sum) const;
  base::Status send(const Step& step, const Outgoing& message, RunContext& context);
  base::Status expect(const Incoming& message, RunContext& context);
  base::Status finish(StepId id, RunContext& context);
  StepId step_of(const wire::MessageId& id, std::uint16_t peer) const;

  // ---- messages between ranks of one machine
  static bool leaves_second_names(const Plan& plan);
  bool is_local(const Step& step) const;
  bool is_place(StepId id) const {
    return states_[id] == State::kRunning && is_local(plan_.steps[id]);
  }
  wire::MessageId second_id_of(const Step& step) const;
  MessageName first_name_of(const wire::MessageId& id) const;
  base::Status send_place(StepId id, RunContext& context);
  base::Status send_place(StepId id, std::uint64_t offset, RunContext& context);
  base::Status expect_place(StepId id, RunContext& context);
  base::Status on_place_sent(StepId id, RunContext& context);
  base::Status on_place_received(StepId id, RunContext& context);
  base::Status use_room(RunContext& context);

  Plan plan_;
  ScratchPool& pool_;
  FloatCoderPool& coders_;
  ByteForm form_;
  ScratchPool::Buffer scratch_;
  std::vector<State> states_;
  std::vector<std::uint32_t> waits_;  // per step, steps it still waits for
  std::unordered_map<std::uint64_t, StepId> by_message_;
  std::deque<ByteSource> sources_;
  std::deque<ByteSink> sinks_;
  std::deque<FoldSink> fold_sinks_;
  std::unordered_map<StepId, EitherSink> either_sinks_;
  SpanCodes codes_;
  std::unordered_map<StepId, LocalSource> local_sources_;
  std::unordered_map<StepId, LocalSink> local_sinks_;
  StagedSpans staged_;
  std::deque<StepId> without_room_;  // sends that wait for room
  base::Instant room_due_;           // when they stop waiting
  std::deque<StepJob> jobs_;
  std::deque<EncodeJob> encode_jobs_;
  std::deque<DecodeJob> decode_jobs_;
  bool has_second_names_;
  std::size_t steps_done_ = 0;
  std::uint32_t jobs_out_ = 0;
  std::uint32_t messages_out_ = 0;
  bool is_withdrawn_ = false;
};

}  // namespace spillway::collective
