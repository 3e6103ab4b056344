// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/vlan_offload.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace spillway::kernel
