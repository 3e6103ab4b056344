// SPDX-License-Identifier: Apache-2.0
//
// The output of `lab compare`: the files of its report, the table, and why a run failed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compare/comparison.h"
#include "compare/notes.h"

namespace spillway::cli {

// The report in the output folder, beside the logs and output of ranks.
struct CompareReport {
  std::filesystem::path page;  // report.html
  std::string json;            // of report.json
};

// Makes the folder if it is missing. Throws CommandError, as writing does.
std::filesystem::path compare_folder(const std::string& path);
CompareReport write_compare_report(const std::filesystem::path& folder,
                                   const compare::Comparison& comparison,
                                   const std::vector<compare::Fact>& network);

// On standard output.
void print_compare_report(const compare::Comparison& comparison, const CompareReport& report);

// On standard error: why a run did not go well and, where ranks ran, the last lines that they
// printed. Those of the rank that failed first stand before the others', which often only say that
// it is gone.
void tell_of_failed_run(const compare::RunRecord& run);

}  // namespace spillway::cli
