// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/program_loading.h"

#include <bpf/libbpf.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

/* clang-format off */
#include "switch/dataplane/sum_slots.h"  // its config is in the skeleton
#include "switch/dataplane/bpf/switch.skel.h"
/* clang-format on */

namespace spillway::kernel {
namespace {

TEST(LoadError, TellsTheVerifiersLastWords) {
  const LoadLog log;
  const std::unique_ptr<switch_bpf, void (*)(switch_bpf*)> skeleton(switch_bpf__open(),
                                                                    switch_bpf__destroy);
  ASSERT_NE(skeleton, nullptr);
  // This program does things that a tc program may not do.
  ASSERT_EQ(::bpf_program__set_type(skeleton->progs.spillway_xdp, BPF_PROG_TYPE_SCHED_CLS), 0);
  const int error = switch_bpf__load(skeleton.get());
  ASSERT_LT(error, 0);
  const std::string message = load_error("load the test's program", -error, log).message();
  if (error == -EPERM) {
    EXPECT_NE(message.find("CAP_BPF"), std::string::npos) << message;
    return;
  }
  EXPECT_NE(message.find("verifier refuses"), std::string::npos) << message;
  EXPECT_NE(message.find("uname -r"), std::string::npos) << message;
  EXPECT_EQ(message.find("processed "), std::string::npos) << message;
  EXPECT_LT(message.size(), 2000U) << message;
}

TEST(LoadError, NamesTheMissingRights) {
  const LoadLog log;
  EXPECT_NE(load_error("load it", EPERM, log).message().find("CAP_BPF"), std::string::npos);
  EXPECT_EQ(load_error("load it", ENOMEM, log).message(), "cannot load it: Cannot allocate memory");
}

TEST(LoadError, ThisKernelWillDo) {
  EXPECT_TRUE(check_kernel().ok());
}

}  // namespace
}  // namespace spillway::kernel
