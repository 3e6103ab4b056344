// SPDX-License-Identifier: Apache-2.0
#include "cli/compare_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "cli/command_error.h"
#include "compare/comparison_json.h"
#include "compare/page.h"

namespace spillway::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::streamoff kMostEndBytes = 8192;

void write_file(const fs::path& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  if (!file) {
    throw CommandError(
        fmt::format("cannot write {}: choose another folder with --out", path.string()));
  }
}

}  // namespace

fs::path compare_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw CommandError(fmt::format("cannot make the folder {} ({}): choose another with --out",
                                   path, error.message()));
  }
  return fs::absolute(path).lexically_normal();
}

CompareReport write_compare_report(const fs::path& folder, const compare::Comparison& comparison,
                                   const std::vector<compare::Fact>& network) {
  CompareReport report;
  report.page = folder / "report.html";
  nlohmann::json json = compare::comparison_json(comparison, network);
  json["page"] = report.page.string();
  // Bytes of a command that are no text would make dump() throw.
  report.json = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  write_file(report.page, compare::comparison_page(comparison, network));
  write_file(folder / "report.json", report.json + "\n");
  return report;
}

std::string end_of_file(const fs::path& path, std::size_t lines) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size <= 0) {
    return {};
  }
  const std::streamoff taken = std::min(size, kMostEndBytes);
  std::string text(static_cast<std::size_t>(taken), '\0');
  file.seekg(size - taken);
  file.read(text.data(), taken);
  std::size_t begin = text.size();
  for (std::size_t i = 0; i <= lines && begin != std::string::npos && begin > 0; ++i) {
    begin = text.rfind('\n', begin - 1);
  }
  return begin == std::string::npos || begin == 0 ? text : text.substr(begin + 1);
}

}  // namespace spillway::cli
