// SPDX-License-Identifier: Apache-2.0
//
// A program run by the kernel on a frame of ours (BPF_PROG_TEST_RUN): it sees and changes its maps,
// but nothing is received or sent. For tests and benchmarks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace spillway::kernel {

struct ProgramRun {
  std::uint32_t verdict = 0;  // XDP_PASS, TC_ACT_SHOT, ...
  std::vector<std::uint8_t> frame;
  std::uint32_t nanoseconds = 0;  // of one run, on average
};

// Runs behind the first find the frame as the one before left it.
base::Result<ProgramRun> run_program(int program_fd, base::ByteView frame,
                                     std::uint32_t repeat = 1);

}  // namespace spillway::kernel
