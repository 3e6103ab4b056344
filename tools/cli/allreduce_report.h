// SPDX-License-Identifier: Apache-2.0
//
// The results of `bench allreduce` as text and as JSON.
//
// As text: the lines of nccl-tests' all_reduce_perf, column for column, followed by Spillway's own
// columns, so that parsers of theirs can read them. All other lines are comments.
//
//   wire      UDP payload bytes per element that crosses the network
//   trimmed   packets that arrived cut, as a share of those expected
//   lost      packets that did not arrive, as a share of those expected
//   NMSE      squared error over energy, against double-precision sums
//
// As JSON: where nccl-tests' file has a key, the same key and type, including yes and no as words;
// the rest is Spillway's own.
//
// Pure functions; those that return text return whole lines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bench/allreduce/measure.h"
#include "tools/bench/allreduce/rivals.h"

namespace spillway::cli {

struct TableStyle {
  unsigned world = 1;
  bool per_iteration = false;  // -I: i_min, i_max, i_p99 and i_cv% of both passes, i_p50 last
};

struct RivalRow {
  std::string name;
  bench::RivalTimes times;
};

struct MeasuredSize {
  bench::AllreduceRow row;
  std::vector<RivalRow> rivals;
};

std::string table_header(const TableStyle& style);
std::string table_row(const bench::AllreduceRow& row, const bench::AllreduceWork& work,
                      const TableStyle& style);
// A rival's figures for the same size, aligned with Spillway's in-place figures, and their ratio.
std::string rival_line(const RivalRow& rival, const bench::AllreduceRow& row,
                       const TableStyle& style);

struct TableTotals {
  double wrong = 0.0;
  double average_bus_bandwidth = 0.0;  // gigabytes per second, over both passes of all rows
};

TableTotals totals_of(const std::vector<MeasuredSize>& sizes, unsigned world);
std::string table_footer(const TableTotals& totals);

std::string allreduce_json(const bench::AllreduceWork& work, const std::vector<MeasuredSize>& sizes,
                           unsigned world);

}  // namespace spillway::cli
