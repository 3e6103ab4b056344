// SPDX-License-Identifier: Apache-2.0
//
// When virtual ranks of a staged world (stage.h) come, as a trace of the job says: recorded, or
// synthesised from a model. The trace is run in virtual time, on the stage's network, and what is
// kept of it is by how much virtual ranks come later than real ones:
//
//   a collective   the last virtual member behind the mean of the real ones; by members, kind and
//                  bytes, in their order
//   a message      when a virtual rank sends, behind when the real one asks for it; by both ends,
//                  in their order
//
// Orders begin anew at their end, so a trace of one step serves for all. What a script calls and
// the trace does not have (other sizes, other groups) it says nothing of.
//
// Made once; any thread may ask.
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
  // A run that kept times of all nodes; `real` is ascending.
  TraceArrivals(const World& world, const GraphRunResult& run,
                const std::vector<std::uint32_t>& real);

  // Of the n-th such collective of the group.
  std::optional<base::Duration> behind(const std::vector<std::uint32_t>& ranks, CollectiveKind kind,
                                       std::uint64_t bytes, std::uint64_t n) const;
  // Of the n-th message between the two; below zero where it is sent before it is asked for.
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
