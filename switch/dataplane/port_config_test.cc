// SPDX-License-Identifier: Apache-2.0
#include "switch/dataplane/port_config.h"

#include <gtest/gtest.h>

#include <functional>

namespace spillway::dataplane {
namespace {

TEST(PortConfig, DefaultsOfEveryModeAreValid) {
  for (int mode = SPILLWAY_PORT_DROP_TAIL; mode <= SPILLWAY_PORT_SPILLWAY; ++mode) {
    const auto config = default_port_config(static_cast<spillway_port_mode>(mode));
    EXPECT_TRUE(validate(config).ok()) << validate(config).message();
    EXPECT_EQ(config.mode, mode);
  }
}

struct Mistake {
  spillway_port_mode mode;
  std::function<void(spillway_port_config&)> make;
  std::string_view words;  // expected in the message
};

TEST(PortConfig, EveryMistakeIsNamed) {
  const Mistake mistakes[] = {
      {SPILLWAY_PORT_DROP_TAIL, [](auto& c) { c.mode = 4; }, "mode 4"},
      {SPILLWAY_PORT_DROP_TAIL, [](auto& c) { c.priorities = 0; }, "not 0"},
      {SPILLWAY_PORT_DROP_TAIL, [](auto& c) { c.priorities = 9; }, "not 9"},
      {SPILLWAY_PORT_DROP_TAIL, [](auto& c) { c.queue_bytes = 0; }, "queue of 0"},
      {SPILLWAY_PORT_DROP_TAIL, [](auto& c) { c.queue_bytes = UINT32_MAX; }, "queue of"},
      {SPILLWAY_PORT_ECN, [](auto& c) { c.red_min_bytes = c.red_max_bytes + 1; }, "begins at"},
      {SPILLWAY_PORT_ECN, [](auto& c) { c.red_max_bytes = UINT32_MAX; }, "ends at"},
      {SPILLWAY_PORT_ECN, [](auto& c) { c.red_max_percent = 101; }, "101 %"},
      {SPILLWAY_PORT_TRIM, [](auto& c) { c.control_queue_bytes = 0; }, "control queue of 0"},
      {SPILLWAY_PORT_TRIM, [](auto& c) { c.control_share_percent = 0; }, "share"},
      {SPILLWAY_PORT_TRIM, [](auto& c) { c.control_share_percent = 101; }, "share"},
      {SPILLWAY_PORT_TRIM, [](auto& c) { c.trim_bytes = 42; }, "trimming to 42"},
      {SPILLWAY_PORT_TRIM, [](auto& c) { c.trim_bytes = 70'000; }, "trimming to 70000"},
      {SPILLWAY_PORT_TRIM, [](auto& c) { c.trimmed_dscp = 64; }, "DSCP 64"},
      {SPILLWAY_PORT_SPILLWAY, [](auto& c) { c.early_drop_bytes = c.queue_bytes + 1; }, "early"},
  };
  for (const Mistake& mistake : mistakes) {
    spillway_port_config config = default_port_config(mistake.mode);
    mistake.make(config);
    const base::Status status = validate(config);
    ASSERT_FALSE(status.ok()) << mistake.words;
    EXPECT_NE(status.message().find(mistake.words), std::string::npos) << status.message();
  }
}

TEST(PortConfig, CountersOfPortsAddUp) {
  spillway_port_counters one = {};
  one.packets[SPILLWAY_REASON_TRIMMED] = 2;
  one.bytes[SPILLWAY_REASON_TRIMMED] = 3'000;
  one.trimmed[4] = 2;
  one.dropped[0] = 5;
  one.dropped_control = 1;
  spillway_port_counters sum = {};
  add_counters(one, sum);
  add_counters(one, sum);
  EXPECT_EQ(sum.packets[SPILLWAY_REASON_TRIMMED], 4U);
  EXPECT_EQ(sum.bytes[SPILLWAY_REASON_TRIMMED], 6'000U);
  EXPECT_EQ(sum.trimmed[4], 4U);
  EXPECT_EQ(sum.dropped[0], 10U);
  EXPECT_EQ(sum.dropped_control, 2U);
}

}  // namespace
}  // namespace spillway::dataplane
