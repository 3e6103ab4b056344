// SPDX-License-Identifier: Apache-2.0
#include "collective/exact/plan.h"

#include <algorithm>
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
  Lane& lane = lanes_[static_cast<std::uint64_t>(step.kind) << 32 |
                      static_cast<std::uint64_t>(step.phase) << 16 | step.peer];
  const std::size_t place = lane.messages++ % window_;
  if (lane.latest.size() <= place) {
    lane.latest.push_back(id);
    ++plan_.max_messages;
  } else {
    order(lane.latest[place], id);
    lane.latest[place] = id;
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

}  // namespace spillway::collective
