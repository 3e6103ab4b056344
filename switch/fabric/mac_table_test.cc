// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/mac_table.h"

#include <gtest/gtest.h>

namespace spillway::fabric {
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
