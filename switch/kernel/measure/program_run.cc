// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/measure/program_run.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>

#include <cerrno>

#include "net/system_call.h"

namespace spillway::kernel {
namespace {

// As many as a network card's driver takes at once.
constexpr std::uint32_t kBatch = 64;
// Most bytes by which a program may grow its frame.
constexpr std::size_t kGrowth = 2048;

}  // namespace

base::Result<ProgramRun> run_program(int program_fd, base::ByteView frame, std::uint32_t repeat) {
  ProgramRun run;
  run.frame.resize(frame.size() + kGrowth);
  bpf_test_run_opts options = {};
  options.sz = sizeof(options);
  options.data_in = frame.data();
  options.data_size_in = static_cast<std::uint32_t>(frame.size());
  options.data_out = run.frame.data();
  options.data_size_out = static_cast<std::uint32_t>(run.frame.size());
  options.repeat = static_cast<int>(repeat);
  if (::bpf_prog_test_run_opts(program_fd, &options) != 0) {
    return net::system_error("run a program in the kernel", errno);
  }
  run.verdict = options.retval;
  run.frame.resize(options.data_size_out);
  run.nanoseconds = options.duration;
  return run;
}

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
