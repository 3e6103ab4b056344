// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "switch/fabric/frame_testing.h"
#include "switch/fabric/ingress.h"

namespace spillway::fabric {

namespace {

constexpr std::uint32_t kHosts = 4;

class IngressOfFrames : public testing::Test {
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
    ingress_.take_frame(at, frame, {});
    std::vector<scenario::HostId> receivers;
    for (const Arrival& arrival : ingress_.arrivals()) {
      EXPECT_EQ(arrival.from, at);
      receivers.push_back(pool_[arrival.packet].to);
      pool_.release(arrival.packet);
    }
    ingress_.next_round();
    return receivers;
  }

  using Hosts = std::vector<scenario::HostId>;
  sim::PacketPool pool_;
  Ingress ingress_{pool_, kHosts};
};

TEST_F(IngressOfFrames, GoWhereTheirReceiverWasSeen) {
  take(3, frame(30, 0));
  Bytes known = frame(10, 30);
  std::fill_n(known.begin(), kMacBytes, std::uint8_t{0});
  std::copy_n(frame(30, 0).begin() + kMacBytes, kMacBytes, known.begin());
  EXPECT_EQ(take(1, known), Hosts{3});
}

TEST_F(IngressOfFrames, NeverGoBackWhereTheyCameFrom) {
  const Bytes spoken = frame(30, 0);
  EXPECT_EQ(take(3, spoken), (Hosts{0, 1, 2}));
  Bytes back = frame(31, 30);
  std::copy_n(spoken.begin() + kMacBytes, kMacBytes, back.begin());
  EXPECT_EQ(take(3, back), Hosts{});
  EXPECT_EQ(ingress_.counters().same_port, 1U);
  EXPECT_EQ(ingress_.counters().unknown, 0U);
  EXPECT_EQ(pool_.in_use(), 0U);
}

TEST_F(IngressOfFrames, StrangersAndGroupsGoToAllOthers) {
  EXPECT_EQ(take(2, frame(10, 99)), (Hosts{0, 1, 3}));
  EXPECT_EQ(take(0, frame(10, 0)), (Hosts{1, 2, 3}));
  EXPECT_EQ(ingress_.counters().same_port, 0U);
}

TEST_F(IngressOfFrames, AnAddressInAnotherVlanIsSomebodyElse) {
  const Bytes spoken = frame(30, 0, /*vlan=*/true);
  take(3, spoken);
  for (const bool vlan : {false, true}) {
    Bytes answer = frame(10, 30, vlan);
    std::copy_n(spoken.begin() + kMacBytes, kMacBytes, answer.begin());
    EXPECT_EQ(take(1, answer), vlan ? Hosts{3} : (Hosts{0, 2, 3}));
  }
}

TEST_F(IngressOfFrames, AFrameWithoutAHeaderIsCountedAndGoesNowhere) {
  EXPECT_EQ(take(1, Bytes(13, 2)), Hosts{});
  EXPECT_EQ(ingress_.counters().unknown, 1U);
}

}  // namespace

namespace {

spillway_station address(std::uint32_t number, std::uint16_t vlan = 0) {
  return {{2, 0, static_cast<std::uint8_t>(number >> 24), static_cast<std::uint8_t>(number >> 16),
           static_cast<std::uint8_t>(number >> 8), static_cast<std::uint8_t>(number)},
          vlan};
}

TEST(MacTable, KnowsWhatItLearntAndForgetsNothingWhileThereIsRoom) {
  MacTable table;
  EXPECT_FALSE(table.find(address(1)));
  for (std::uint32_t host = 0; host < 64; ++host) {
    table.learn(address(host), host);
  }
  for (std::uint32_t host = 0; host < 64; ++host) {
    EXPECT_EQ(table.find(address(host)), host);
  }
}

TEST(MacTable, AnAddressMoves) {
  MacTable table;
  table.learn(address(7), 1);
  table.learn(address(7), 2);
  EXPECT_EQ(table.find(address(7)), 2U);
}

TEST(MacTable, AFloodOfAddressesPushesOldOnesOutAndLaterOnesStay) {
  MacTable table;
  table.learn(address(0), 0);
  constexpr std::uint32_t kFlood = 100'000;
  for (std::uint32_t number = 1; number <= kFlood; ++number) {
    table.learn(address(number), 1);
  }
  EXPECT_FALSE(table.find(address(0)));
  EXPECT_EQ(table.find(address(kFlood)), 1U);
  std::size_t known = 0;
  for (std::uint32_t number = 0; number <= kFlood; ++number) {
    known += table.find(address(number)) ? 1 : 0;
  }
  EXPECT_EQ(known, kMacTableSize);
}

TEST(MacTable, AnAddressIsAnotherStationInEveryVlan) {
  MacTable table;
  table.learn(address(7, 5), 1);
  table.learn(address(7, SPILLWAY_STATION_SERVICE | 5), 2);
  EXPECT_EQ(table.find(address(7, 5)), 1U);
  EXPECT_EQ(table.find(address(7, SPILLWAY_STATION_SERVICE | 5)), 2U);
  EXPECT_FALSE(table.find(address(7)));
}

}  // namespace

}  // namespace spillway::fabric
