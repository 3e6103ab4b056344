// SPDX-License-Identifier: Apache-2.0
//
// One rank's part of an operation, as data: messages to send and to receive, sums to form, and
// which of them has to wait for which. An algorithm is a function that writes such a plan; PlanRun
// carries out any of them.
//
// Every step is done once all steps that unlock it are done. A plan has no cycles: steps unlock
// only steps that were added later (PlanBuilder checks it). Spans lie inside the operation's
// buffers and the plan's scratch. A message is named by (peer, phase, part), which is unique among
// a rank's messages to a peer, and among those from it.
//
// Messages of one kind, peer and phase are a flow, and a flow has a window: its message n waits for
// its message n - W to be done. So the messages under way at one time are bounded however large the
// operation is (Plan::max_messages). No cycle of waiting can form: an algorithm adds the messages
// of all flows in one order that all ranks share (piece by piece). Every step waits only for steps
// of the same piece or of earlier ones, and within a piece the algorithm decides what waits for
// what. So the first piece that is not done anywhere can go on everywhere.
//
// PlanBuilder writes it step by step. Each call adds a step and says what it waits for; empty spans
// make no step, so that algorithms need not care about ranks with nothing to do.
//
//   PlanBuilder plan(/*window=*/4);
//   const StepId came = plan.receive(peer, phase, part, scratch);
//   const StepId sum = plan.reduce(target, {scratch, own}, /*is_final=*/true, {came});
//   plan.send(peer, phase, part, target, {sum});
//
// Plain values; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <vector>

#include "collective/operation.h"
#include "wire/data_packet.h"

namespace spillway::collective {

enum class Region : std::uint8_t { kInput, kOutput, kScratch };

// A run of bytes in one of the operation's three memories.
struct Span {
  Region region = Region::kInput;
  std::size_t offset = 0;
  std::size_t bytes = 0;

  friend bool operator==(const Span&, const Span&) = default;
};

using StepId = std::uint32_t;

struct Step {
  enum class Kind : std::uint8_t {
    kSend,
    kReceive,
    kReduce,
    kCopy,
    kCopyToHost,    // a device's input, to the host (plan_run.h)
    kCopyToDevice,  // the output, to the device
  };
  Kind kind = Kind::kSend;
  wire::Phase phase = wire::Phase::kReduce;  // messages only
  std::uint16_t peer = 0;
  std::uint16_t part = 0;
  bool is_final = false;           // reduction: nothing is added after it
  Span span;                       // sent, received into, or written
  std::uint32_t first_source = 0;  // reduction or copy: in Plan::sources
  std::uint32_t source_count = 0;
  std::uint32_t first_unlocked = 0;  // in Plan::unlocked
  std::uint32_t unlocked_count = 0;
  std::uint32_t waits_for = 0;  // steps
};

struct Plan {
  Algorithm algorithm = Algorithm::kDirect;
  std::vector<Step> steps;
  std::vector<Span> sources;
  std::vector<StepId> unlocked;
  std::size_t scratch_bytes = 0;
  std::size_t max_messages = 0;  // at one time, sent and received ones together

  std::span<const Span> sources_of(const Step& step) const {
    return std::span(sources).subspan(step.first_source, step.source_count);
  }
  std::span<const StepId> unlocked_by(const Step& step) const {
    return std::span(unlocked).subspan(step.first_unlocked, step.unlocked_count);
  }
};

// `to` waits for `from`.
struct Edge {
  StepId from;
  StepId to;
};
// Makes steps wait for each other as `edges` say, and for nothing else. The steps that a step
// unlocks run in the order of its edges.
void link(Plan& plan, std::vector<Edge> edges);

// Stands for a step that was not needed: nothing waits for it.
inline constexpr StepId kNoStep = UINT32_MAX;

class PlanBuilder {
 public:
  // `window`: messages of a flow at one time, at least 1.
  explicit PlanBuilder(std::size_t window) : window_(window) {}

  StepId send(std::uint16_t to, wire::Phase phase, std::size_t part, const Span& span,
              std::initializer_list<StepId> after = {});
  StepId receive(std::uint16_t from, wire::Phase phase, std::size_t part, const Span& span,
                 std::initializer_list<StepId> after = {});
  // The same in messages of at most `most` bytes, parts 0, 1, 2, ...
  void send_pieces(std::uint16_t to, wire::Phase phase, const Span& span, std::size_t most);
  void receive_pieces(std::uint16_t from, wire::Phase phase, const Span& span, std::size_t most);
  // Adds `sources` up in their order.
  StepId reduce(const Span& target, std::span<const Span> sources, bool is_final,
                std::span<const StepId> after);
  StepId copy(const Span& target, const Span& source, std::initializer_list<StepId> after = {});

  // Makes `later` wait for `earlier`, too.
  void order(StepId earlier, StepId later);

  // Room for `bytes` in the scratch memory, aligned for any element.
  Span scratch(std::size_t bytes);

  Plan finish(Algorithm algorithm);

 private:
  StepId add(const Step& step, std::span<const StepId> after);
  StepId add_message(const Step& step, std::span<const StepId> after);

  struct Flow {
    std::size_t messages = 0;
    std::vector<StepId> latest;  // a ring of `window` steps
  };
  std::size_t window_;
  Plan plan_;
  std::vector<Edge> edges_;
  std::map<std::uint64_t, Flow> flows_;
};

// The plan for a tensor in a device's memory: the same steps, on memory of the host, plus steps
// that copy. Input is brought to the host before the first step that reads it, in the order in
// which the plan reads; output is taken back after the last steps that write it. So the first
// messages leave while the rest of the tensor is still copied, and what has come is copied while
// the rest is under way. One copy covers several pieces, because it costs the host about as much as
// a message of one.
//
// Where input and output are one memory, what is taken back has been brought before: nothing is
// written to a place before all ranks' parts of it were read.
//
// Pure; any thread.

// `bytes`: of the input; `copy_bytes`: most bytes of one copy.
Plan on_device(const Plan& plan, std::size_t bytes, std::size_t copy_bytes);

// Copy size for a tensor of so many bytes: many copies that overlap with the rest, each worth its
// costs.
std::size_t copy_bytes_of(std::size_t bytes);

}  // namespace spillway::collective
