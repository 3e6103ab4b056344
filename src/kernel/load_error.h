// SPDX-License-Identifier: Apache-2.0
//
// Why the kernel would not take a program, as a sentence that says what to do. libbpf tells the
// details by printing; a LoadLog keeps them meanwhile. libbpf's printer is the process's: one
// LoadLog at a time, the last one made is told.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace spillway::kernel {

// This kernel is too old, or is no Linux we can make out; ok otherwise.
base::Status check_kernel();

class LoadLog {
 public:
  LoadLog();
  ~LoadLog();
  LoadLog(const LoadLog&) = delete;
  LoadLog& operator=(const LoadLog&) = delete;

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// `error` is an errno. `attempt` continues "cannot".
base::Status load_error(std::string_view attempt, int error, const LoadLog& log);

}  // namespace spillway::kernel
