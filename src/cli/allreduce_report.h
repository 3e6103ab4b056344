// SPDX-License-Identifier: Apache-2.0
//
// The results of `bench allreduce`, for people and for machines.
//
// As text: the lines of nccl-tests' all_reduce_perf, column for column, with Spillway's own columns
// behind them, so that what reads theirs reads these. Everything else is a comment line.
//
//   wire      UDP payload for every element that crosses the network, in bytes
//   trimmed   packets that arrived cut, of those that were to come
//   lost      packets that did not arrive
//   NMSE      squared error over energy, against sums in double precision
//
// As JSON: the keys of the file that nccl-tests writes where it has them, yes and no as words
// included; the rest is Spillway's own.
//
// Pure functions; those that make text return whole lines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/allreduce/measure.h"
#include "bench/allreduce/rivals.h"

namespace spillway::cli {

struct TableStyle {
  unsigned world = 1;
  bool per_iteration = false;  // -I: i_min, i_max, i_p99 and i_cv% of both passes, i_p50 at the end
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
// How a rival did at the same size, below Spillway's figures in place, and how those compare.
std::string rival_line(const RivalRow& rival, const bench::AllreduceRow& row,
                       const TableStyle& style);

struct TableTotals {
  double wrong = 0.0;
  double average_bus_bandwidth = 0.0;  // gigabytes a second, over both passes of all rows
};

TableTotals totals_of(const std::vector<MeasuredSize>& sizes, unsigned world);
std::string table_footer(const TableTotals& totals);

std::string allreduce_json(const bench::AllreduceWork& work, const std::vector<MeasuredSize>& sizes,
                           unsigned world);

}  // namespace spillway::cli
