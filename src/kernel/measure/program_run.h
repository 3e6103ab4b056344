// SPDX-License-Identifier: Apache-2.0
//
// Programs run by the kernel on frames of ours (BPF_PROG_TEST_RUN), for tests and benchmarks.
//
// run_program(): a program sees and changes its maps, but nothing is received or sent.
//
// send_live_frames(): real frames as if an interface had received them, many at a call, made by the
// kernel itself (BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18). An XDP program is run on each and its
// verdict is carried out. The fastest source of frames there is without a second machine. The
// buffers are used again without being written anew: what changes a frame changes the later ones
// too.
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
  std::uint32_t nanoseconds = 0;  // of one run, on average
};

// Runs behind the first find the frame as the one before left it.
base::Result<ProgramRun> run_program(int program_fd, base::ByteView frame,
                                     std::uint32_t repeat = 1);

// `ifindex` is of the calling thread's network namespace; the interface must have an XDP program,
// though not this one. Returns when all have been run.
base::Status send_live_frames(int program_fd, std::uint32_t ifindex, base::ByteView frame,
                              std::uint32_t count);

}  // namespace spillway::kernel
