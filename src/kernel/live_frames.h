// SPDX-License-Identifier: Apache-2.0
//
// Real frames into the kernel as if an interface had received them, many at a call, made by the
// kernel itself (BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18): an XDP program is run on each and its
// verdict is carried out. The fastest source of frames there is without a second machine.
//
// The buffers are used again without being written anew: what changes a frame changes the later
// ones too.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"

namespace spillway::kernel {

// `ifindex` is of the calling thread's network namespace; the interface must have an XDP program,
// though not this one. Returns when all have been run.
base::Status send_live_frames(int program_fd, std::uint32_t ifindex, base::ByteView frame,
                              std::uint32_t count);

}  // namespace spillway::kernel
