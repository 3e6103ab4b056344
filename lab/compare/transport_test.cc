// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/transport.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace spillway::compare {
namespace {

using Words = std::vector<std::string>;

TEST(Transport, NamesAreReadInTheirOrder) {
  const auto transports = parse_transports("spillway,tcp,spillway-exact");
  ASSERT_TRUE(transports.ok());
  ASSERT_EQ(transports->size(), 3U);
  EXPECT_EQ((*transports)[0].name, "spillway");
  EXPECT_EQ((*transports)[1].name, "tcp");
  EXPECT_EQ((*transports)[2].name, "spillway-exact");
}

bool sets(const Transport& transport, const char* variable) {
  const Words& all = transport.variables;
  return std::find(all.begin(), all.end(), variable) != all.end();
}

TEST(Transport, TcpIsCubicUnlessItsNameSaysOtherwise) {
  const auto all = parse_transports("tcp,tcp-bbr,tcp-fp16,tcp-powersgd,spillway-over-tcp");
  ASSERT_TRUE(all.ok());
  EXPECT_EQ((*all)[0].title, "tcp (cubic)");
  EXPECT_EQ((*all)[1].title, "tcp-bbr");
  for (const Transport& transport : *all) {
    EXPECT_EQ(transport.tcp, transport.name == "tcp-bbr" ? "bbr" : "cubic");
    EXPECT_NE(transport.title.find(transport.tcp), std::string::npos) << transport.title;
  }
}

TEST(Transport, VariablesSayBackendHookModeBitsAndCarrier) {
  const auto all = parse_transports(
      "tcp,tcp-fp16,tcp-powersgd,spillway-exact,spillway-16,spillway,spillway-over-tcp");
  ASSERT_TRUE(all.ok());
  EXPECT_TRUE(sets((*all)[0], "SPILLWAY_LAB_BACKEND=gloo"));
  EXPECT_TRUE(sets((*all)[0], "SPILLWAY_LAB_HOOK="));
  EXPECT_TRUE(sets((*all)[1], "SPILLWAY_LAB_HOOK=fp16"));
  EXPECT_TRUE(sets((*all)[2], "SPILLWAY_LAB_HOOK=powersgd"));
  EXPECT_TRUE(sets((*all)[3], "SPILLWAY_MODE=exact"));
  EXPECT_TRUE(sets((*all)[4], "SPILLWAY_PRECISION=16"));
  EXPECT_TRUE(sets((*all)[5], "SPILLWAY_MODE=tolerant"));
  EXPECT_TRUE(sets((*all)[5], "SPILLWAY_CARRIER=udp"));
  EXPECT_TRUE(sets((*all)[6], "SPILLWAY_MODE=tolerant"));
  EXPECT_TRUE(sets((*all)[6], "SPILLWAY_CARRIER=tcp"));
  EXPECT_TRUE(sets((*all)[6], "SPILLWAY_LAB_BACKEND=spillway"));
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
