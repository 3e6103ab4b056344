// SPDX-License-Identifier: Apache-2.0
//
// What `lab compare` leaves in its folder, besides what ranks printed and logged: report.html and
// report.json. Throws CommandError, naming what cannot be written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compare/network_facts.h"
#include "compare/run_record.h"

namespace spillway::cli {

// Makes it where it is not there.
std::filesystem::path compare_folder(const std::string& path);

struct CompareReport {
  std::filesystem::path page;
  std::string json;
};

CompareReport write_compare_report(const std::filesystem::path& folder,
                                   const compare::Comparison& comparison,
                                   const std::vector<compare::Fact>& network);

// The last lines of a file, at most `lines` of them and a few kilobytes.
std::string end_of_file(const std::filesystem::path& path, std::size_t lines);

}  // namespace spillway::cli
