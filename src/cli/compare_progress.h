// SPDX-License-Identifier: Apache-2.0
//
// The run that is under way, as a line on standard error that renews itself; silent unless that is
// a terminal. The line goes with the object.
#pragma once

#include <cstddef>
#include <string>

#include "compare/transport_run.h"

namespace spillway::cli {

class CompareProgress {
 public:
  explicit CompareProgress(std::size_t runs);
  ~CompareProgress();
  CompareProgress(const CompareProgress&) = delete;
  CompareProgress& operator=(const CompareProgress&) = delete;

  void begin_run() { ++run_; }
  void show(const compare::RunProgress& progress) const;
  // So that something else can be printed.
  void clear() const;

 private:
  std::size_t runs_;
  std::size_t run_ = 0;
  bool shown_;
};

// "[2/3] spillway  12 s  step 120  accuracy 71.2 %  queue 96 KiB  trimmed 1,234  lost 5"
std::string progress_line(std::size_t run, std::size_t runs, const compare::RunProgress& progress);

}  // namespace spillway::cli
