// SPDX-License-Identifier: Apache-2.0
//
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
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "emulate/stage/stage_durations.h"

namespace spillway::emulate {

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
  // What the table lacked and `otherwise` answered: "all-gather among 4 ranks 1 apart", "messages".
  // Where the table was extrapolated: "all-reduce among 8 ranks 1 apart beyond 1048576 bytes".
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
