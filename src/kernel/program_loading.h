// SPDX-License-Identifier: Apache-2.0
//
// Why the kernel would not take a program, as a sentence that says what to do, and what it
// understands of one.
//
// libbpf tells the details by printing; a LoadLog keeps them meanwhile. libbpf's printer is the
// process's: one LoadLog at a time, the last one made is told. The rest may be called by any
// thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

struct bpf_program;  // libbpf's

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

// Frames that take several buffers, as on interfaces with a large MTU: an XDP program runs there
// only if it says that it can cope with them. Says so for a program that is not loaded yet; false
// where this kernel would not understand it (it takes 5.18).
bool allow_fragments(bpf_program* program);

}  // namespace spillway::kernel
