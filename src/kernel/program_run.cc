// SPDX-License-Identifier: Apache-2.0
#include "kernel/program_run.h"

#include <bpf/bpf.h>

#include <cerrno>

#include "net/system_error.h"

namespace spillway::kernel {

base::Result<ProgramRun> run_program(int program_fd, base::ByteView frame, std::uint32_t repeat) {
  ProgramRun run;
  run.frame.resize(frame.size());
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

}  // namespace spillway::kernel
