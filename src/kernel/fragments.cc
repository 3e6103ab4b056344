// SPDX-License-Identifier: Apache-2.0
#include "kernel/fragments.h"

#include <bpf/libbpf.h>
#include <linux/bpf.h>

#include "net/kernel_release.h"

namespace spillway::kernel {
namespace {

constexpr net::KernelRelease kHasFragments{5, 18};

}  // namespace

bool allow_fragments(bpf_program* program) {
  return net::kernel_release() >= kHasFragments &&
         ::bpf_program__set_flags(program, ::bpf_program__flags(program) | BPF_F_XDP_HAS_FRAGS) ==
             0;
}

}  // namespace spillway::kernel
