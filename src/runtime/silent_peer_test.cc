// SPDX-License-Identifier: Apache-2.0
#include "runtime/silent_peer.h"

#include <gtest/gtest.h>

namespace spillway::runtime {
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
