// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/attachment.h"

#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

#include "switch/kernel/kernel_switch.h"
#include "switch/kernel/program_loading.h"

/* clang-format off */
#include "switch/dataplane/sum_slots.h"  // its config is in the skeleton
#include "switch/dataplane/bpf/switch.skel.h"
/* clang-format on */

namespace spillway::kernel {
namespace {

TEST(VlanOffload, LoopbackTakesNothingOut) {
  const base::Result<Interface> loopback = find_interface("lo");
  ASSERT_TRUE(loopback.ok());
  const base::Result<std::uint8_t> kinds = stripped_tags(*loopback);
  ASSERT_TRUE(kinds.ok()) << kinds.status().message();
  EXPECT_EQ(*kinds, 0);
  EXPECT_FALSE(is_veth(*loopback));
}

TEST(VlanOffload, WhatCannotBeTurnedOffIsRefusedWithTheCommand) {
  const Interface gone{"no-such-one", 9999};
  EXPECT_FALSE(stripped_tags(gone).ok());
  EXPECT_FALSE(is_veth(gone));
  const base::Status status = keep_tags(gone, kCustomerTags | kServiceTags);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("`ethtool -K no-such-one rxvlan off rx-vlan-stag-hw-parse off`"),
            std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("--hook tc"), std::string::npos) << status.message();
  strip_tags_again(gone.index, kCustomerTags);  // no effect
}

// ------------------------------------------------------------------ loading

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

// ------------------------------------------------------------------ plans

std::vector<fabric::PortAttachment> interfaces(std::size_t count) {
  std::vector<fabric::PortAttachment> attachments(count);
  for (std::size_t i = 0; i < count; ++i) {
    attachments[i].interface = fmt::format("p{}", i);
  }
  return attachments;
}

base::Result<SwitchPlan> plan(const std::string& text, std::size_t ports = 3) {
  return plan_switch(scenario::parse_scenario(text).value(), interfaces(ports));
}

TEST(SwitchPlan, TakesRatesQueuesAndLossOverFromTheScenario) {
  const base::Result<SwitchPlan> made = plan(
      "topology one-switch hosts=3 rate=1gbit delay=10us\n"
      "switch mode=spillway queue=64k trim=206 lengths=stale\n"
      "fault kind=gray link=switch0->host1 share=25%\n");
  ASSERT_TRUE(made.ok()) << made.status().message();
  ASSERT_EQ(made->ports.size(), 3U);
  const PlannedPort& port = made->ports[1];
  EXPECT_EQ(port.name, "switch0->host1");
  EXPECT_EQ(port.interface, "p1");
  EXPECT_EQ(port.config.trim_bytes, 206U);
  EXPECT_EQ(port.config.queue_bytes, 65536U);
  EXPECT_EQ(port.config.lengths, SPILLWAY_LENGTHS_STALE);
  EXPECT_EQ(port.link.rate, (1U << SPILLWAY_RATE_SHIFT) / 8);
  EXPECT_EQ(port.link.lost_of_2_32, 1U << 30);
  EXPECT_EQ(made->ports[0].link.lost_of_2_32, 0U);
}

TEST(SwitchPlan, AllOfALinksFramesMayBeLost) {
  const base::Result<SwitchPlan> made = plan(
      "topology one-switch hosts=3 rate=400gbit\nfault kind=gray link=switch0->host0 share=1\n");
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->ports[0].link.lost_of_2_32, 0xFFFFFFFFU);
  EXPECT_EQ(made->ports[0].link.rate, 50U << SPILLWAY_RATE_SHIFT);
}

TEST(SwitchPlan, SaysWhatTheKernelCannotDo) {
  const struct {
    const char* text;
    const char* word;
  } cases[] = {
      {"topology leaf-spine hosts=4 leaves=2 spines=1\n", "3 switches"},
      {"topology one-switch hosts=3 delay=10ms\n", "delay"},
      {"topology one-switch hosts=3\ntenant from=host0 to=host1 protocol=udp rate=50%\n", "tenant"},
      {"topology one-switch hosts=3\nfault kind=bursty link=switch0->host0 share=1%\n", "fault"},
      {"topology one-switch hosts=3\nfault kind=gray link=switch0->host0 share=1% from=1ms\n",
       "fault"},
      {"topology one-switch hosts=3\nfault kind=gray link=host0->switch0 share=1%\n",
       "host0->switch0"},
      {"topology one-switch hosts=65\n", "64 ports"},
      {"topology one-switch hosts=4\n", "host3"},
  };
  for (const auto& [text, word] : cases) {
    const base::Result<SwitchPlan> made = plan(text);
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_NE(made.status().message().find(word), std::string::npos) << made.status().message();
    EXPECT_NE(made.status().message().find("spillway switch run"), std::string::npos);
  }
}

}  // namespace

}  // namespace spillway::kernel
