// SPDX-License-Identifier: Apache-2.0
//
// Reads a progress log (progress_log.h) while somebody writes it: each look takes what has been
// added, kMostBytesPerLook at most. A file that is not there, yet or at all, holds nothing. One
// thread.
#pragma once

#include <cstddef>
#include <string>

#include "compare/progress_log.h"
#include "net/unique_fd.h"

namespace spillway::compare {

class LogFollower {
 public:
  static constexpr std::size_t kMostBytesPerLook = std::size_t{1} << 20;

  explicit LogFollower(std::string path) : path_(std::move(path)) {}

  // True: there was something.
  bool look();
  // Whatever is left; the file is complete.
  void finish();

  const ProgressLog& log() const { return reader_.log(); }

 private:
  std::string path_;
  net::UniqueFd file_;
  ProgressLogReader reader_;
};

}  // namespace spillway::compare
