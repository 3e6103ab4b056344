// SPDX-License-Identifier: Apache-2.0
//
// Runs programs in the kernel on given frames (BPF_PROG_TEST_RUN), for tests and benchmarks.
//
// run_program(): a program reads and changes its maps, but nothing is received or sent.
//
// send_live_frames(): the kernel itself makes real frames, as if an interface had received them,
// many per call (BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18). An XDP program runs on each, and its
// verdict is carried out. This is the fastest source of frames without a second machine. Buffers
// are reused without being rewritten, so a change to one frame shows in later ones.
//
// No state; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace spillway::kernel {

struct ProgramRun {
  std::uint32_t verdict = 0;  // XDP_PASS, TC_ACT_SHOT, ...
  std::vector<std::uint8_t> frame;
  std::uint32_t nanoseconds = 0;  // average per run
};

// Every run but the first finds the frame as the last one left it.
base::Result<ProgramRun> run_program(int program_fd, base::ByteView frame,
                                     std::uint32_t repeat = 1);

// `ifindex` is of the calling thread's network namespace. The interface must have an XDP program,
// but not necessarily this one. Returns when all runs are done.
base::Status send_live_frames(int program_fd, std::uint32_t ifindex, base::ByteView frame,
                              std::uint32_t count);

}  // namespace spillway::kernel
