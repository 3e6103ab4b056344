// SPDX-License-Identifier: Apache-2.0
//
// For tests of observers: a temporary folder and the log in a file of it. All fields of a record
// have the same number, so that a mixture of two shows.
#pragma once

#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "observe/log.h"
#include "observe/operation_record.h"

namespace spillway::observe {

inline std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "spillway-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

 private:
  std::string path_;
};

// Captures the log while it lives, with the given SPILLWAY_DEBUG and SPILLWAY_DEBUG_SUBSYS.
class CapturedLog {
 public:
  explicit CapturedLog(const std::string& level = "", const std::string& subsystems = "")
      : file_(folder_.file("log")) {
    apply_log_config(*log_config({{"SPILLWAY_DEBUG", level},
                                  {"SPILLWAY_DEBUG_SUBSYS", subsystems},
                                  {"SPILLWAY_DEBUG_FILE", file_}}));
  }
  ~CapturedLog() { apply_log_config(*log_config({})); }

  std::string text() const { return text_of(file_); }
  std::vector<std::string> lines() const { return lines_of(text()); }
  bool says(const std::string& words) const { return text().find(words) != std::string::npos; }

 private:
  TemporaryFolder folder_;
  std::string file_;
};

inline OperationRecord uniform_record(std::uint32_t number) {
  OperationRecord record;
  record.sequence = number;
  record.count = record.bytes = record.packets_expected = number;
  record.packets_missing = record.wire_bytes_received = number;
  record.late_ranks.fill(number);
  record.message.fill(static_cast<char>('a' + number % 26));
  record.message.back() = '\0';
  return record;
}

inline bool is_uniform(const OperationRecord& record) {
  const std::uint64_t number = record.sequence;
  return record.count == number && record.bytes == number && record.packets_expected == number &&
         record.packets_missing == number && record.wire_bytes_received == number &&
         record.late_ranks.front() == number && record.late_ranks.back() == number &&
         record.message.front() == static_cast<char>('a' + number % 26) &&
         record.message[100] == record.message.front();
}

}  // namespace spillway::observe
