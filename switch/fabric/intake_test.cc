// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/intake.h"

#include <gtest/gtest.h>

#include "switch/fabric/frame_testing.h"

namespace spillway::fabric {
namespace {

constexpr std::uint32_t kHosts = 4;

class IntakeOfFrames : public testing::Test {
 protected:
  // A frame between the addresses with these numbers; 0 is broadcast.
  static Bytes frame(std::uint8_t from, std::uint8_t to, bool vlan = false) {
    Bytes made = make_frame({.vlan = vlan, .payload = data_payload(200)}).bytes;
    std::fill_n(made.begin(), kMacBytes, to == 0 ? std::uint8_t{0xFF} : std::uint8_t{2});
    made[5] = to == 0 ? 0xFF : to;
    made[11] = from;
    return made;
  }

  // The hosts that the frame goes to.
  std::vector<scenario::HostId> take(scenario::HostId at, const Bytes& frame) {
    intake_.take_frame(at, frame, {});
    std::vector<scenario::HostId> receivers;
    for (const Arrival& arrival : intake_.arrivals()) {
      EXPECT_EQ(arrival.from, at);
      receivers.push_back(pool_[arrival.packet].to);
      pool_.release(arrival.packet);
    }
    intake_.next_round();
    return receivers;
  }

  using Hosts = std::vector<scenario::HostId>;
  sim::PacketPool pool_;
  Intake intake_{pool_, kHosts};
};

TEST_F(IntakeOfFrames, GoWhereTheirReceiverWasSeen) {
  take(3, frame(30, 0));
  Bytes known = frame(10, 30);
  std::fill_n(known.begin(), kMacBytes, std::uint8_t{0});
  std::copy_n(frame(30, 0).begin() + kMacBytes, kMacBytes, known.begin());
  EXPECT_EQ(take(1, known), Hosts{3});
}

TEST_F(IntakeOfFrames, NeverGoBackWhereTheyCameFrom) {
  const Bytes spoken = frame(30, 0);
  EXPECT_EQ(take(3, spoken), (Hosts{0, 1, 2}));
  Bytes back = frame(31, 30);
  std::copy_n(spoken.begin() + kMacBytes, kMacBytes, back.begin());
  EXPECT_EQ(take(3, back), Hosts{});
  EXPECT_EQ(intake_.counters().same_port, 1U);
  EXPECT_EQ(intake_.counters().unknown, 0U);
  EXPECT_EQ(pool_.in_use(), 0U);
}

TEST_F(IntakeOfFrames, StrangersAndGroupsGoToAllOthers) {
  EXPECT_EQ(take(2, frame(10, 99)), (Hosts{0, 1, 3}));
  EXPECT_EQ(take(0, frame(10, 0)), (Hosts{1, 2, 3}));
  EXPECT_EQ(intake_.counters().same_port, 0U);
}

TEST_F(IntakeOfFrames, AnAddressInAnotherVlanIsSomebodyElse) {
  const Bytes spoken = frame(30, 0, /*vlan=*/true);
  take(3, spoken);
  for (const bool vlan : {false, true}) {
    Bytes answer = frame(10, 30, vlan);
    std::copy_n(spoken.begin() + kMacBytes, kMacBytes, answer.begin());
    EXPECT_EQ(take(1, answer), vlan ? Hosts{3} : (Hosts{0, 2, 3}));
  }
}

TEST_F(IntakeOfFrames, AFrameWithoutAHeaderIsCountedAndGoesNowhere) {
  EXPECT_EQ(take(1, Bytes(13, 2)), Hosts{});
  EXPECT_EQ(intake_.counters().unknown, 1U);
}

}  // namespace
}  // namespace spillway::fabric
