// SPDX-License-Identifier: Apache-2.0
//
// Frames that take several buffers, as on interfaces with a large MTU: an XDP program runs there
// only if it says that it can cope with them, which kernels understand since 5.18.
#pragma once

struct bpf_program;

namespace spillway::kernel {

// Says so for a program that is not loaded yet; false where this kernel would not understand it.
bool allow_fragments(bpf_program* program);

}  // namespace spillway::kernel
