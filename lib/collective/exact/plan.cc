// SPDX-License-Identifier: Apache-2.0
#include "collective/exact/plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace spillway::collective {

namespace {

constexpr std::size_t kAlignment = 64;  // a cache line

Step message(Step::Kind kind, std::uint16_t peer, wire::Phase phase, std::size_t part,
             const Span& span) {
  SPILLWAY_CHECK(part <= UINT16_MAX);
  Step step;
  step.kind = kind;
  step.phase = phase;
  step.peer = peer;
  step.part = static_cast<std::uint16_t>(part);
  step.span = span;
  return step;
}

Span piece(const Span& span, std::size_t most, std::size_t index) {
  const std::size_t first = index * most;
  return {span.region, span.offset + first, std::min(most, span.bytes - first)};
}

std::span<const StepId> view(std::initializer_list<StepId> steps) {
  return {steps.begin(), steps.size()};
}

}  // namespace

void link(Plan& plan, std::vector<Edge> edges) {
  std::stable_sort(edges.begin(), edges.end(),
                   [](const Edge& a, const Edge& b) { return a.from < b.from; });
  for (Step& step : plan.steps) {
    step.unlocked_count = step.waits_for = 0;
  }
  plan.unlocked.clear();
  plan.unlocked.reserve(edges.size());
  for (const Edge& edge : edges) {
    SPILLWAY_CHECK(edge.from < edge.to);
    Step& step = plan.steps[edge.from];
    if (step.unlocked_count++ == 0) {
      step.first_unlocked = static_cast<std::uint32_t>(plan.unlocked.size());
    }
    plan.unlocked.push_back(edge.to);
    ++plan.steps[edge.to].waits_for;
  }
}

StepId PlanBuilder::add(const Step& step, std::span<const StepId> after) {
  if (step.span.bytes == 0) {
    return kNoStep;
  }
  const auto id = static_cast<StepId>(plan_.steps.size());
  plan_.steps.push_back(step);
  for (const StepId before : after) {
    order(before, id);
  }
  return id;
}

StepId PlanBuilder::add_message(const Step& step, std::span<const StepId> after) {
  const StepId id = add(step, after);
  if (id == kNoStep) {
    return id;
  }
  Flow& flow = flows_[static_cast<std::uint64_t>(step.kind) << 32 |
                      static_cast<std::uint64_t>(step.phase) << 16 | step.peer];
  const std::size_t place = flow.messages++ % window_;
  if (flow.latest.size() <= place) {
    flow.latest.push_back(id);
    ++plan_.max_messages;
  } else {
    order(flow.latest[place], id);
    flow.latest[place] = id;
  }
  return id;
}

void PlanBuilder::order(StepId earlier, StepId later) {
  if (earlier != kNoStep && later != kNoStep) {
    edges_.push_back({earlier, later});
  }
}

StepId PlanBuilder::send(std::uint16_t to, wire::Phase phase, std::size_t part, const Span& span,
                         std::initializer_list<StepId> after) {
  return add_message(message(Step::Kind::kSend, to, phase, part, span), view(after));
}

StepId PlanBuilder::receive(std::uint16_t from, wire::Phase phase, std::size_t part,
                            const Span& span, std::initializer_list<StepId> after) {
  return add_message(message(Step::Kind::kReceive, from, phase, part, span), view(after));
}

void PlanBuilder::send_pieces(std::uint16_t to, wire::Phase phase, const Span& span,
                              std::size_t most) {
  for (std::size_t part = 0; part * most < span.bytes; ++part) {
    send(to, phase, part, piece(span, most, part));
  }
}

void PlanBuilder::receive_pieces(std::uint16_t from, wire::Phase phase, const Span& span,
                                 std::size_t most) {
  for (std::size_t part = 0; part * most < span.bytes; ++part) {
    receive(from, phase, part, piece(span, most, part));
  }
}

StepId PlanBuilder::reduce(const Span& target, std::span<const Span> sources, bool is_final,
                           std::span<const StepId> after) {
  Step step;
  step.kind = Step::Kind::kReduce;
  step.is_final = is_final;
  step.span = target;
  step.first_source = static_cast<std::uint32_t>(plan_.sources.size());
  step.source_count = static_cast<std::uint32_t>(sources.size());
  plan_.sources.insert(plan_.sources.end(), sources.begin(), sources.end());
  return add(step, after);
}

StepId PlanBuilder::copy(const Span& target, const Span& source,
                         std::initializer_list<StepId> after) {
  Step step;
  step.kind = Step::Kind::kCopy;
  step.span = target;
  step.first_source = static_cast<std::uint32_t>(plan_.sources.size());
  step.source_count = 1;
  plan_.sources.push_back(source);
  return add(step, view(after));
}

Span PlanBuilder::scratch(std::size_t bytes) {
  const Span span{Region::kScratch, plan_.scratch_bytes, bytes};
  plan_.scratch_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return span;
}

Plan PlanBuilder::finish(Algorithm algorithm) {
  plan_.algorithm = algorithm;
  link(plan_, std::move(edges_));
  return std::move(plan_);
}

namespace {

constexpr std::size_t kCopies = 32;
constexpr std::size_t kLeastCopy = std::size_t{512} << 10;
constexpr std::size_t kMostCopy = std::size_t{4} << 20;

std::span<const Span> read_by(const Plan& plan, const Step& step) {
  return step.kind == Step::Kind::kSend ? std::span(&step.span, 1) : plan.sources_of(step);
}

bool writes_output(const Step& step) {
  return step.kind != Step::Kind::kSend && step.span.region == Region::kOutput;
}

Step copy_step(Step::Kind kind, const Span& span) {
  Step step;
  step.kind = kind;
  step.span = span;
  return step;
}

// Runs of bytes that do not overlap, by where they begin, each with a step's number.
struct Part {
  std::size_t end;
  StepId step;
};
using Parts = std::map<std::size_t, Part>;

// The first run that ends behind `offset`.
Parts::iterator first_behind(Parts& parts, std::size_t offset) {
  const auto next = parts.upper_bound(offset);
  const bool reaches_in = next != parts.begin() && std::prev(next)->second.end > offset;
  return reaches_in ? std::prev(next) : next;
}

// Copies of the input, added as they are asked for.
class HostCopies {
 public:
  HostCopies(std::size_t bytes, std::size_t copy_bytes) : bytes_(bytes), copy_bytes_(copy_bytes) {}

  // Makes `reader` wait for the copies of what it reads.
  void add(const Span& span, StepId reader, std::vector<Edge>& edges) {
    const std::size_t end = span.offset + span.bytes;
    auto next = first_behind(parts_, span.offset);
    for (std::size_t at = span.offset; at < end; ++next) {
      if (next == parts_.end() || next->first > at) {
        const std::size_t until =
            std::min({at + copy_bytes_, bytes_, next == parts_.end() ? bytes_ : next->first});
        next = parts_.emplace_hint(next, at, Part{until, static_cast<StepId>(steps_.size())});
        steps_.push_back(copy_step(Step::Kind::kCopyToHost, {Region::kInput, at, until - at}));
      }
      edges.push_back({next->second.step, reader});
      at = next->second.end;
    }
  }

  std::vector<Step>& steps() { return steps_; }

 private:
  std::size_t bytes_;
  std::size_t copy_bytes_;
  Parts parts_;
  std::vector<Step> steps_;
};

// The step that writes each part of the output last.
Parts last_writers(const Plan& plan) {
  Parts parts;
  for (auto id = static_cast<StepId>(plan.steps.size()); id-- > 0;) {
    const Step& step = plan.steps[id];
    if (!writes_output(step)) {
      continue;
    }
    const std::size_t end = step.span.offset + step.span.bytes;
    auto next = first_behind(parts, step.span.offset);
    for (std::size_t at = step.span.offset; at < end; ++next) {
      if (next == parts.end() || next->first > at) {
        const std::size_t until = next == parts.end() ? end : std::min(end, next->first);
        next = parts.emplace_hint(next, at, Part{until, id});
      }
      at = next->second.end;
    }
  }
  return parts;
}

}  // namespace

std::size_t copy_bytes_of(std::size_t bytes) {
  return std::clamp(bytes / kCopies, kLeastCopy, kMostCopy);
}

Plan on_device(const Plan& plan, std::size_t bytes, std::size_t copy_bytes) {
  std::vector<Edge> reads;
  HostCopies copies(bytes, copy_bytes);
  for (StepId id = 0; id < plan.steps.size(); ++id) {
    for (const Span& span : read_by(plan, plan.steps[id])) {
      if (span.region == Region::kInput) {
        copies.add(span, id, reads);
      }
    }
  }
  Plan made = plan;
  made.steps = std::move(copies.steps());
  const auto shift = static_cast<StepId>(made.steps.size());
  std::vector<Edge> edges;
  for (const Edge& read : reads) {
    edges.push_back({read.from, read.to + shift});
  }
  for (StepId id = 0; id < plan.steps.size(); ++id) {
    made.steps.push_back(plan.steps[id]);
    for (const StepId next : plan.unlocked_by(plan.steps[id])) {
      edges.push_back({id + shift, next + shift});
    }
  }
  std::size_t end = 0;
  bool is_first = true;
  for (const auto& [offset, part] : last_writers(plan)) {
    const std::size_t length = part.end - offset;
    if (is_first || offset != end || made.steps.back().span.bytes + length > copy_bytes) {
      made.steps.push_back(copy_step(Step::Kind::kCopyToDevice, {Region::kOutput, offset, 0}));
    }
    made.steps.back().span.bytes += length;
    edges.push_back({part.step + shift, static_cast<StepId>(made.steps.size() - 1)});
    end = part.end;
    is_first = false;
  }
  link(made, std::move(edges));
  return made;
}

}  // namespace spillway::collective
