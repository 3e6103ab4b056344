// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/switch_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace spillway::kernel {
namespace {

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
