// SPDX-License-Identifier: Apache-2.0
//
// Writes a plan step by step. Each call adds a step and says what it waits for; empty spans make no
// step, so that algorithms need not care about ranks with nothing to do.
//
//   PlanBuilder plan;
//   const StepId came = plan.receive(peer, phase, part, scratch);
//   const StepId sum = plan.reduce(target, {scratch, own}, /*is_final=*/true, {came});
//   plan.send(peer, phase, part, target, {sum});
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "collective/plan.h"

namespace spillway::collective {

// Stands for a step that was not needed: nothing waits for it.
inline constexpr StepId kNoStep = UINT32_MAX;

class PlanBuilder {
 public:
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

  // Has `later` wait for `earlier` too.
  void order(StepId earlier, StepId later);

  // Room for `bytes` in the scratch memory, aligned for any element.
  Span scratch(std::size_t bytes);

  Plan finish(Algorithm algorithm);

 private:
  StepId add(const Step& step, std::span<const StepId> after);

  struct Edge {
    StepId from;
    StepId to;
  };
  Plan plan_;
  std::vector<Edge> edges_;
};

}  // namespace spillway::collective
