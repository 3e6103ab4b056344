// SPDX-License-Identifier: Apache-2.0
//
// Durations for a staged world from the simulator's network, at the level of flows
// (simulate/flow_model.h).
//
// Contention by virtual ranks: a job that divides a world into groups divides all of it. If a
// group's ranks are evenly spaced, its sisters (sister_groups) are the other groups of the same
// division. All of them run the same collective at the same time. Groups without a regular shape do
// not slow each other down; neither do different divisions at the same time.
//
// Results are cached by group, kind, root and bytes, up to kMaxRemembered of them; further ones are
// calculated each time.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "emulate/simulate/flow_model.h"
#include "emulate/stage/stage_durations.h"

namespace spillway::emulate {

// All groups of the division of `world` ranks that contains the group `ranks`, itself first. Only
// itself if its ranks are not evenly spaced or `world` is no multiple of the pattern.
std::vector<std::vector<std::uint32_t>> sister_groups(const std::vector<std::uint32_t>& ranks,
                                                      std::uint32_t world);

class FlowDurations final : public StageDurations {
 public:
  static constexpr std::size_t kMaxRemembered = 1'000'000;

  FlowDurations(std::uint32_t world, FabricPaths paths, const FlowModelOptions& options);
  FlowDurations(const FlowDurations&) = delete;
  FlowDurations& operator=(const FlowDurations&) = delete;

  base::Result<base::Duration> collective(const StagedCollective& collective) override;
  base::Result<base::Duration> message(std::uint32_t from, std::uint32_t to,
                                       std::uint64_t bytes) override;

 private:
  struct Division {
    std::uint32_t first = 0;  // index of the division's first group; they are consecutive
    std::uint32_t count = 0;
  };
  using Key = std::tuple<std::uint32_t, CollectiveKind, std::uint32_t, std::uint64_t>;

  const Division& division_of(const std::vector<std::uint32_t>& ranks);
  base::Result<base::Duration> run(const std::vector<Transfer>& transfers);

  World world_;
  FabricPaths paths_;
  FlowModel model_;
  base::Instant now_{};
  std::map<std::vector<std::uint32_t>, Division> divisions_;
  std::map<Key, base::Duration> remembered_;
};

}  // namespace spillway::emulate
