// SPDX-License-Identifier: Apache-2.0
#include "kernel/live_frames.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>

#include <cerrno>

#include "net/system_error.h"

namespace spillway::kernel {
namespace {

// As many as a network card's driver takes at a time.
constexpr std::uint32_t kBatch = 64;

}  // namespace

base::Status send_live_frames(int program_fd, std::uint32_t ifindex, base::ByteView frame,
                              std::uint32_t count) {
  xdp_md context = {};
  context.data_end = static_cast<std::uint32_t>(frame.size());
  context.ingress_ifindex = ifindex;
  bpf_test_run_opts options = {};
  options.sz = sizeof(options);
  options.data_in = frame.data();
  options.data_size_in = static_cast<std::uint32_t>(frame.size());
  options.ctx_in = &context;
  options.ctx_size_in = sizeof(context);
  options.repeat = static_cast<int>(count);
  options.flags = BPF_F_TEST_XDP_LIVE_FRAMES;
  options.batch_size = kBatch;
  if (::bpf_prog_test_run_opts(program_fd, &options) == 0) {
    return {};
  }
  return net::system_error("let the kernel make frames", errno, "it takes Linux 5.18");
}

}  // namespace spillway::kernel
