// SPDX-License-Identifier: Apache-2.0
#include "collective/exact/plan_device.h"

#include <algorithm>
#include <map>
#include <utility>

namespace spillway::collective {
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
class Brings {
 public:
  Brings(std::size_t bytes, std::size_t copy_bytes) : bytes_(bytes), copy_bytes_(copy_bytes) {}

  // Makes `reader` wait for the copies of what it reads.
  void add(const Span& span, StepId reader, std::vector<Edge>& edges) {
    const std::size_t end = span.offset + span.bytes;
    auto next = first_behind(parts_, span.offset);
    for (std::size_t at = span.offset; at < end; ++next) {
      if (next == parts_.end() || next->first > at) {
        const std::size_t until =
            std::min({at + copy_bytes_, bytes_, next == parts_.end() ? bytes_ : next->first});
        next = parts_.emplace_hint(next, at, Part{until, static_cast<StepId>(steps_.size())});
        steps_.push_back(copy_step(Step::Kind::kBring, {Region::kInput, at, until - at}));
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
  Brings brings(bytes, copy_bytes);
  for (StepId id = 0; id < plan.steps.size(); ++id) {
    for (const Span& span : read_by(plan, plan.steps[id])) {
      if (span.region == Region::kInput) {
        brings.add(span, id, reads);
      }
    }
  }
  Plan made = plan;
  made.steps = std::move(brings.steps());
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
      made.steps.push_back(copy_step(Step::Kind::kTakeBack, {Region::kOutput, offset, 0}));
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
