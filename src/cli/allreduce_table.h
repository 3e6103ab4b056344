// SPDX-License-Identifier: Apache-2.0
//
// The lines of nccl-tests' all_reduce_perf, column for column, with Spillway's own columns behind
// them, so that what reads theirs reads these. Everything else is a comment line.
//
//   wire      UDP payload for every element that crosses the network, in bytes
//   trimmed   packets that arrived cut, of those that were to come
//   lost      packets that did not arrive
//   NMSE      squared error over energy, against sums in double precision
//
// Pure functions; each returns whole lines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/allreduce_measure.h"
#include "cli/allreduce_rival.h"
#include "cli/allreduce_settings.h"

namespace spillway::cli {

struct TableStyle {
  unsigned world = 1;
  bool per_iteration = false;  // -I: i_min, i_max, i_p99 and i_cv% of both passes, i_p50 at the end
};

struct RivalRow {
  std::string name;
  RivalTimes times;
};

struct MeasuredSize {
  AllreduceRow row;
  std::vector<RivalRow> rivals;
};

std::string table_header(const TableStyle& style);
std::string table_row(const AllreduceRow& row, const AllreduceSettings& settings,
                      const TableStyle& style);
// How a rival did at the same size, below Spillway's figures in place, and how those compare.
std::string rival_line(const RivalRow& rival, const AllreduceRow& row, const TableStyle& style);

struct TableTotals {
  double wrong = 0.0;
  double average_bus_bandwidth = 0.0;  // gigabytes a second, over both passes of all rows
};

TableTotals totals_of(const std::vector<MeasuredSize>& sizes, unsigned world);
std::string table_footer(const TableTotals& totals);

}  // namespace spillway::cli
