// SPDX-License-Identifier: Apache-2.0
//
// How long communication in a staged world takes (stage.h) once all participants have arrived. One
// thread.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "emulate/simulate/flow_model.h"
#include "emulate/trace/graph.h"

namespace spillway::emulate {

struct StagedCollective {
  const std::vector<std::uint32_t>& ranks;  // ascending, at least two
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::uint64_t bytes = 0;  // as in a trace's node (observe/chakra.h)
  std::uint32_t root = 0;   // a rank of the world, if the collective has a root
  // Its predecessor in the group had not ended when its last member arrived.
  bool is_behind = false;
};

// The properties of a collective that determine its cost.
struct CollectiveShape {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::uint32_t ranks = 0;   // of the group
  std::uint32_t stride = 1;  // distance between its ranks
  std::uint64_t bytes = 0;   // as in a trace's node

  friend auto operator<=>(const CollectiveShape&, const CollectiveShape&) = default;
};

// The distance between neighbouring ranks: 0 if it is not constant, 1 for a single rank.
inline std::uint32_t stride_of(const std::vector<std::uint32_t>& ranks) {
  const std::uint32_t stride = ranks.size() < 2 ? 1 : ranks[1] - ranks[0];
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i] - ranks[i - 1] != stride) {
      return 0;
    }
  }
  return stride;
}

class StageDurations {
 public:
  virtual ~StageDurations() = default;

  // Fails with an explanation if the duration is unknown.
  virtual base::Result<base::Duration> collective(const StagedCollective& collective) = 0;
  virtual base::Result<base::Duration> message(std::uint32_t from, std::uint32_t to,
                                               std::uint64_t bytes) = 0;
};

// Durations for a staged world from the simulator's network, at the level of flows
// (simulate/flow_model.h).
//
// Contention by virtual ranks: a job that divides a world into groups divides all of it. If a
// group's ranks are evenly spaced, its siblings (sibling_groups) are the other groups of the same
// division. All of them run the same collective at the same time. Groups without a regular shape do
// not slow each other down; neither do different divisions at the same time.
//
// Results are cached by group, kind, root and bytes, up to kMaxRemembered of them; further ones are
// calculated each time.

// All groups of the division of `world` ranks that contains the group `ranks`, itself first. Only
// itself if its ranks are not evenly spaced or `world` is no multiple of the pattern.
std::vector<std::vector<std::uint32_t>> sibling_groups(const std::vector<std::uint32_t>& ranks,
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

// Measured durations for a staged world (`spillway emulate calibrate`): a table of how long
// collectives of given ranks and bytes took on some network, with all costs there, including the
// hosts' CPUs.
//
//   {"table": 1, "about": "8 ranks, lab clean", "rows": [
//     {"kind": "all_reduce", "ranks": 8, "stride": 1, "bytes": 4096, "us": 312.5,
//      "behind_us": 290.1}, ...],
//    "memory": {"real": [0, 1], "bytes": 9437184}}
//
// A row describes a group of ranks `stride` apart, while all other groups of the same division of
// the world did the same. `behind_us` is the time that a collective adds if another one like it is
// under way in its group; if absent, it is `us`.
//
// The memory, which is optional, is what the library of a real rank holds in addition if all ranks
// are real.
//
// Between two measured sizes, durations are interpolated on a line. Below the smallest size the
// duration is that of the smallest; above the largest, the line of the last two continues.
// `otherwise` answers for messages and for kinds of groups that the table lacks; uncovered() lists
// them.
//
// Limits: kMaxTableRows, kMaxTableMemory. One thread.

struct MeasuredRow {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::uint32_t ranks = 0;
  std::uint32_t stride = 1;
  std::uint64_t bytes = 0;
  base::Duration duration{};
  std::optional<base::Duration> behind{};
};

struct MeasuredMemory {
  std::vector<std::uint32_t> real{};
  std::uint64_t bytes = 0;
};

struct MeasuredTable {
  std::string about;
  std::vector<MeasuredRow> rows;
  std::optional<MeasuredMemory> memory{};
};
inline constexpr std::size_t kMaxTableRows = 100'000;
inline constexpr std::uint64_t kMaxTableMemory = std::uint64_t{1} << 36;

// Fails with an explanation if the text is no such table.
base::Result<MeasuredTable> parse_table(std::string_view text);
std::string table_text(const MeasuredTable& table);

class MeasuredDurations final : public StageDurations {
 public:
  // `otherwise` must outlive it.
  MeasuredDurations(const MeasuredTable& table, StageDurations& otherwise);

  base::Result<base::Duration> collective(const StagedCollective& collective) override;
  base::Result<base::Duration> message(std::uint32_t from, std::uint32_t to,
                                       std::uint64_t bytes) override;
  // Calls that the table lacked and `otherwise` answered: "all-gather among 4 ranks 1 apart",
  // "messages". Where the table was extrapolated: "all-reduce among 8 ranks 1 apart beyond 1048576
  // bytes".
  const std::set<std::string>& uncovered() const { return uncovered_; }

 private:
  using Curve = std::map<std::uint64_t, double>;  // nanoseconds by bytes
  struct Curves {
    Curve alone;
    Curve behind;
  };

  // By kind, ranks and stride.
  std::map<std::tuple<CollectiveKind, std::size_t, std::uint32_t>, Curves> curves_;
  StageDurations& otherwise_;
  std::set<std::string> uncovered_;
};

}  // namespace spillway::emulate
