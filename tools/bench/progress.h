// SPDX-License-Identifier: Apache-2.0
//
// A progress line on standard error for work that takes seconds; silent if that is no terminal.
#pragma once

#include <cstddef>
#include <string_view>

namespace spillway::bench {

class Progress {
 public:
  explicit Progress(std::size_t steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows the current action and counts one step.
  void step(std::string_view what);

 private:
  std::size_t steps_;
  std::size_t done_ = 0;
  bool shown_;
};

}  // namespace spillway::bench
