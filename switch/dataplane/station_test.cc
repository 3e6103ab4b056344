// SPDX-License-Identifier: Apache-2.0
#include "switch/dataplane/station.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway::dataplane {
namespace {

using Frame = std::vector<std::uint8_t>;

constexpr spillway_tag kNone = {};

// A frame from address 7 to address 9, with these bytes after the addresses.
Frame frame_with(std::initializer_list<std::uint8_t> behind) {
  Frame frame = {2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 7};
  frame.insert(frame.end(), behind);
  return frame;
}

std::uint16_t vlan_of(const Frame& frame, const spillway_tag& beside = kNone) {
  spillway_station receiver = {};
  spillway_station sender = {};
  const std::uint8_t* end = frame.data() + frame.size();
  EXPECT_TRUE(spillway_read_receiver(frame.data(), end, &beside, &receiver));
  EXPECT_TRUE(spillway_read_sender(frame.data(), end, &beside, &sender));
  EXPECT_EQ(receiver.address[5], 9);
  EXPECT_EQ(sender.address[5], 7);
  EXPECT_EQ(receiver.vlan, sender.vlan);
  return receiver.vlan;
}

TEST(Station, IsAnAddressInTheOutermostVlan) {
  EXPECT_EQ(vlan_of(frame_with({8, 0, 0x45})), 0);
  EXPECT_EQ(vlan_of(frame_with({0x81, 0, 0xE1, 0x23, 8, 0})), 0x123);
  EXPECT_EQ(vlan_of(frame_with({0x88, 0xA8, 0xE1, 0x23, 8, 0})), SPILLWAY_STATION_SERVICE | 0x123);
  EXPECT_EQ(vlan_of(frame_with({0x88, 0xA8, 0, 5, 0x81, 0, 0, 6, 8, 0})),
            SPILLWAY_STATION_SERVICE | 5);
}

TEST(Station, ATagBesideTheFrameIsItsOutermost) {
  const Frame frame = frame_with({0x81, 0, 0, 6, 8, 0});
  EXPECT_EQ(vlan_of(frame, {SPILLWAY_ETHERTYPE_VLAN, 0xE005}), 5);
  EXPECT_EQ(vlan_of(frame, {SPILLWAY_ETHERTYPE_SERVICE_VLAN, 5}), SPILLWAY_STATION_SERVICE | 5);
}

TEST(Station, APriorityAloneIsNoVlan) {
  EXPECT_EQ(vlan_of(frame_with({0x81, 0, 0xE0, 0, 8, 0})), 0);
  EXPECT_EQ(vlan_of(frame_with({0x88, 0xA8, 0xE0, 0, 8, 0})), 0);
}

TEST(Station, ATagThatIsNotWholeIsNone) {
  EXPECT_EQ(vlan_of(frame_with({0x81, 0})), 0);
  EXPECT_EQ(vlan_of(frame_with({0x81, 0, 0, 5, 8})), 0);
}

TEST(Station, GroupsNeitherSendNorAreOneReceiver) {
  Frame frame = frame_with({8, 0});
  spillway_station station = {};
  const auto reads = [&station, &frame](auto read) {
    return read(frame.data(), frame.data() + frame.size(), &kNone, &station) != 0;
  };
  frame[0] = 0xFF;
  EXPECT_FALSE(reads(spillway_read_receiver));
  EXPECT_TRUE(reads(spillway_read_sender));
  frame[6] = 0x33;
  EXPECT_FALSE(reads(spillway_read_sender));
  frame.resize(13);
  frame[0] = frame[6] = 2;
  EXPECT_FALSE(reads(spillway_read_receiver));
  EXPECT_FALSE(reads(spillway_read_sender));
}

TEST(Station, NoFrameGoesBack) {
  EXPECT_TRUE(spillway_returns(3, 3));
  EXPECT_FALSE(spillway_returns(3, 4));
}

}  // namespace
}  // namespace spillway::dataplane
