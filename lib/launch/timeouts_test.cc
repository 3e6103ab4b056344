// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "launch/timeouts.h"

namespace spillway::runtime {
namespace {

TEST(Timeouts, TheCallerGoesBeforeTheEnvironmentAndThatBeforeTheDefaults) {
  const auto plain = timeouts_from({}, {});
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->peer, base::milliseconds(1400));
  EXPECT_EQ(plain->rendezvous, base::seconds(60));

  const base::Environment told = {{"SPILLWAY_PEER_TIMEOUT", "7.5"},
                                  {"SPILLWAY_RENDEZVOUS_TIMEOUT", "3"}};
  const auto variables = timeouts_from(told, {});
  ASSERT_TRUE(variables.ok());
  EXPECT_EQ(variables->peer, base::milliseconds(7500));
  EXPECT_EQ(variables->rendezvous, base::seconds(3));

  const auto caller = timeouts_from(told, {base::seconds(1), std::nullopt});
  ASSERT_TRUE(caller.ok());
  EXPECT_EQ(caller->peer, base::seconds(1));
  EXPECT_EQ(caller->rendezvous, base::seconds(3));
}

TEST(Timeouts, AVariableThatMakesNoSenseIsNamed) {
  for (const char* text : {"0", "-1", "soon", "5s", "nan", "inf", "0.01", "1e9"}) {
    const auto timeouts =
        timeouts_from({{"SPILLWAY_PEER_TIMEOUT", text}}, {base::seconds(1), std::nullopt});
    ASSERT_FALSE(timeouts.ok()) << text;
    EXPECT_EQ(timeouts.status().message(),
              "SPILLWAY_PEER_TIMEOUT is '" + std::string(text) +
                  "': it must be a number of seconds from 0.1 to 86400, such as 5 or 0.5");
  }
  EXPECT_FALSE(timeouts_from({{"SPILLWAY_RENDEZVOUS_TIMEOUT", "x"}}, {}).ok());
}

}  // namespace

namespace {

const base::Status kDead{base::StatusCode::kPeerFailed, "rank 1 is dead"};

TEST(SilentPeer, OneThatWasThereMayBeStarved) {
  const base::Status said = with_advice(kDead, {.address = {}, .has_worked = true});
  EXPECT_EQ(said.code(), base::StatusCode::kPeerFailed);
  EXPECT_EQ(said.message(),
            "rank 1 is dead; if it lives but waits for a processor, set SPILLWAY_PEER_TIMEOUT to "
            "more seconds");
}

TEST(SilentPeer, OneThatNeverWasMayBeOutOfReach) {
  const auto address = net::SocketAddress::parse("10.9.8.7:4321");
  const base::Status said = with_advice(kDead, {.address = *address, .has_worked = false});
  EXPECT_NE(said.message().find("UDP goes from here to 10.9.8.7:4321"), std::string::npos);
  EXPECT_NE(said.message().find("SPILLWAY_SOCKET_IFNAME"), std::string::npos);
}

}  // namespace

}  // namespace spillway::runtime
