// SPDX-License-Identifier: Apache-2.0
//
// Durations of a staged world that were measured (`spillway emulate calibrate`): a table of what a
// collective of so many ranks and bytes took on some network, with everything that it costs there,
// hosts' processors included.
//
//   {"table": 1, "about": "8 ranks, lab clean", "rows": [
//     {"kind": "all_reduce", "ranks": 8, "stride": 1, "bytes": 4096, "us": 312.5,
//      "behind_us": 290.1}, ...],
//    "memory": {"real": [0, 1], "bytes": 9437184}}
//
// A row is of a group of ranks `stride` apart, while all other groups of the same division of the
// world did the same. `behind_us` is what one takes more that was called while another like it was
// under way in its group; without it, as much.
//
// The memory, which may be missing, is what the library of a real rank holds more of where all
// ranks are real than where only those are.
//
// Between two measured sizes a duration is on the line through them; below the smallest it is the
// smallest's, above the largest it grows with the bytes as between the last two. A kind of group
// that is not in the table, and messages, are asked of `otherwise`; which these were,
// uncovered() says.
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

// The sentence where a text is no such table.
base::Result<MeasuredTable> parse_table(std::string_view text);
std::string table_text(const MeasuredTable& table);

class MeasuredDurations final : public StageDurations {
 public:
  // `otherwise` outlives it.
  MeasuredDurations(const MeasuredTable& table, StageDurations& otherwise);

  base::Result<base::Duration> collective(const StagedCollective& collective) override;
  base::Result<base::Duration> message(std::uint32_t from, std::uint32_t to,
                                       std::uint64_t bytes) override;
  // "all-gather among 4 ranks 1 apart", "messages": what the table did not have and was asked of
  // `otherwise`; "all-reduce among 8 ranks 1 apart beyond 1048576 bytes": what it was continued
  // for.
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
