// SPDX-License-Identifier: Apache-2.0
//
// When virtual ranks of a staged world (stage.h) arrive, according to a trace of the job that was
// recorded or synthesized from a model. The trace runs in virtual time on the stage's network. It
// gives how much later virtual ranks come than real ones:
//
//   a collective   the last virtual member after the mean of the real ones; by members, kind and
//                  bytes, in order
//   a message      when a virtual rank sends, after the real one asks for it; by both ends, in
//                  order
//
// Each order starts again at its end, so a trace of one step serves for all. The trace says nothing
// about calls that it lacks (other sizes, other groups).
//
// Immutable; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "emulate/simulate/graph_run.h"
#include "emulate/trace/graph.h"

namespace spillway::emulate {

class TraceArrivals {
 public:
  // The run must have kept the times of all nodes; `real` is ascending.
  TraceArrivals(const World& world, const GraphRunResult& run,
                const std::vector<std::uint32_t>& real);

  // For the n-th such collective of the group.
  std::optional<base::Duration> behind(const std::vector<std::uint32_t>& ranks, CollectiveKind kind,
                                       std::uint64_t bytes, std::uint64_t n) const;
  // For the n-th message between the two; negative if it is sent before it is asked for.
  std::optional<base::Duration> sent_behind(std::uint32_t from, std::uint32_t to,
                                            std::uint64_t n) const;
  std::size_t collectives() const { return collectives_.size(); }  // different ones
  std::size_t channels() const { return messages_.size(); }

 private:
  using Shape = std::tuple<std::vector<std::uint32_t>, CollectiveKind, std::uint64_t>;
  using Ends = std::pair<std::uint32_t, std::uint32_t>;

  void take_collectives(const World& world, const GraphRunResult& run,
                        const std::vector<std::uint32_t>& real);
  void take_messages(const World& world, const GraphRunResult& run,
                     const std::vector<std::uint32_t>& real);

  std::map<Shape, std::vector<base::Duration>> collectives_;
  std::map<Ends, std::vector<base::Duration>> messages_;
};

}  // namespace spillway::emulate
