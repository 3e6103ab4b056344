// SPDX-License-Identifier: Apache-2.0
#include "compare/transport.h"

#include <gtest/gtest.h>

namespace spillway::compare {
namespace {

using Words = std::vector<std::string>;

TEST(Transport, NamesAreReadInTheirOrder) {
  const auto transports = parse_transports("spillway,tcp,spillway-exact");
  ASSERT_TRUE(transports.ok());
  ASSERT_EQ(transports->size(), 3U);
  EXPECT_EQ((*transports)[0].variables, Words{"SPILLWAY_MODE=tolerant"});
  EXPECT_EQ((*transports)[1].backend, "gloo");
  EXPECT_TRUE((*transports)[1].variables.empty());
  EXPECT_EQ((*transports)[2].variables, Words{"SPILLWAY_MODE=exact"});
}

TEST(Transport, WhatIsNoListIsRefusedWithTheNamesThatAre) {
  for (const char* names : {"", "udp", "tcp,", ",tcp", "tcp;spillway"}) {
    const auto transports = parse_transports(names);
    ASSERT_FALSE(transports.ok()) << names;
    EXPECT_NE(transports.status().message().find("spillway-exact"), std::string::npos) << names;
  }
  EXPECT_FALSE(parse_transports("tcp,tcp").ok());
}

TEST(Transport, PlaceholdersAreReplacedWhereverTheyStand) {
  const Transport transport = parse_transports("spillway-exact")->front();
  EXPECT_EQ(command_for({"a", "--b={backend}", "{log}{log}", "x{transport}y"}, transport, "/l"),
            (Words{"a", "--b=spillway", "/l/l", "xspillway-exacty"}));
}

TEST(Transport, AllElseIsLeftAlone) {
  const Transport transport = parse_transports("tcp")->front();
  const Words command = {"{", "{}", "{backen", "backend}", "{{rank}", ""};
  EXPECT_EQ(command_for(command, transport, "/l"), command);
  EXPECT_EQ(command_for({"{log}"}, transport, "{backend}"), Words{"{backend}"});
}

TEST(Transport, ACommandThatNamesNoneIsTheSameForAll) {
  EXPECT_TRUE(tells_transports_apart({"train", "--backend={backend}"}));
  EXPECT_TRUE(tells_transports_apart({"{transport}.sh"}));
  EXPECT_FALSE(tells_transports_apart({"train", "{log}"}));
}

}  // namespace
}  // namespace spillway::compare
