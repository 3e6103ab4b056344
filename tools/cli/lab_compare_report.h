// SPDX-License-Identifier: Apache-2.0
//
// Output of `lab compare`: the report's files, the table, and reasons of failed runs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lab/compare/comparison.h"
#include "lab/compare/comparison_report.h"

namespace spillway::cli {

// The report in the output folder, beside the ranks' logs and output.
struct CompareReport {
  std::filesystem::path page;  // report.html
  std::string json;            // content of report.json
};

// Makes the folder if it is missing. Throws CommandError on failure, as write_compare_report()
// does.
std::filesystem::path compare_folder(const std::string& path);
CompareReport write_compare_report(const std::filesystem::path& folder,
                                   const compare::Comparison& comparison,
                                   const std::vector<compare::Fact>& network);

// Prints to standard output.
void print_compare_report(const compare::Comparison& comparison, const CompareReport& report);

// Prints to standard error why a run failed and, if ranks ran, the last lines of their output. The
// rank that failed first comes first: the others often only report that it is gone.
void tell_of_failed_run(const compare::RunRecord& run);

}  // namespace spillway::cli
