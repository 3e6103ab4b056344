// SPDX-License-Identifier: Apache-2.0
#include "runtime/timeouts.h"

#include <gtest/gtest.h>

namespace spillway::runtime {
namespace {

TEST(Timeouts, TheCallerGoesBeforeTheEnvironmentAndThatBeforeTheDefaults) {
  const auto plain = timeouts_from({}, {});
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->peer, kPeerTimeout);
  EXPECT_EQ(plain->rendezvous, kRendezvousPatience);

  const Environment told = {{"SPILLWAY_PEER_TIMEOUT", "7.5"}, {"SPILLWAY_RENDEZVOUS_TIMEOUT", "3"}};
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
}  // namespace spillway::runtime
