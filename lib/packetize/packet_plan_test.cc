// SPDX-License-Identifier: Apache-2.0
#include "packetize/packet_plan.h"

#include <gtest/gtest.h>

namespace spillway::packetize {
namespace {

PacketPlan plan_for(std::size_t length, unsigned mtu, unsigned trim, unsigned planes = 16) {
  return PacketPlan::make(length, {.mtu = mtu, .trim_bytes = trim}, {.precision = planes}).value();
}

TEST(PacketPlan, FillsTheMtuWhereTheTrimSizeAllows) {
  const PacketPlan plan = plan_for(1 << 20, 1500, 256);
  EXPECT_EQ(plan.coordinates_per_packet(), 672U);
  EXPECT_LE(plan.max_packet_size(), 1472U);
  EXPECT_GT(plan.max_packet_size(), 1400U);
}

TEST(PacketPlan, HeadSurvivesTheWorstCutAndHoldsAWholePlane) {
  for (const unsigned mtu : {576U, 1280U, 1500U, 4096U, 9000U}) {
    for (const unsigned trim : {110U, 128U, 206U, 256U, 512U, 1024U}) {
      for (const unsigned planes : {8U, 12U, 16U, 32U}) {
        const PacketPlan plan = plan_for(100'000, mtu, trim, planes);
        const std::size_t count = plan.coordinates_per_packet();
        const std::size_t head = plan.head_bytes(count);
        EXPECT_GE(head, count / 8) << mtu << " " << trim;
        EXPECT_LE(14 + 28 + 56 + head, trim - 4) << mtu << " " << trim;
        EXPECT_LE(plan.max_packet_size() + 28, mtu);
      }
    }
  }
}

TEST(PacketPlan, SmallTrimSizesCapTheCoordinatesWhateverTheMtu) {
  EXPECT_EQ(plan_for(1 << 20, 9000, 206).coordinates_per_packet(), 832U);
  EXPECT_EQ(plan_for(1 << 20, 9000, 128).coordinates_per_packet(), 192U);
}

// A row of 2^13 needs as many packets as if all but the last were full.
TEST(PacketPlan, PacketsOfARowAreAlikeWhereNothingIsTrimmed) {
  EXPECT_EQ(plan_for(1 << 20, 9000, 0).coordinates_per_packet(), 4096U);
  for (const unsigned precision : {9U, 16U}) {
    const PacketPlan plan = plan_for(1 << 20, 9000, 0, precision);
    EXPECT_EQ(plan.packets_in(0), 2U) << precision;
    EXPECT_EQ(plan.place(0).count, plan.place(1).count) << precision;
  }
}

TEST(PacketPlan, LongPacketsHoldWholeRows) {
  for (const unsigned precision : {1U, 5U, 8U}) {
    const PacketPlan plan = plan_for(1 << 20, 9000, 0, precision);
    EXPECT_EQ(plan.packets_in(0), 1U) << precision;
    EXPECT_EQ(plan.packet_count(), plan.layout().row_count()) << precision;
    EXPECT_LE(plan.max_packet_size(), 8972U) << precision;
  }
}

TEST(PacketPlan, PlacesCoverEveryCoordinateOnce) {
  const PacketPlan plan = plan_for(70'001, 1500, 206);
  std::size_t packet = 0;
  for (std::size_t row = 0; row < plan.layout().row_count(); ++row) {
    std::size_t expected_first = 0;
    for (std::size_t slot = 0; slot < plan.packets_in(row); ++slot, ++packet) {
      const PacketPlace place = plan.place(packet);
      EXPECT_EQ(place.row, row);
      EXPECT_EQ(place.slot, slot);
      EXPECT_EQ(place.first, expected_first);
      expected_first += place.count;
    }
    EXPECT_EQ(expected_first, plan.layout().row(row).length());
  }
  EXPECT_EQ(packet, plan.packet_count());
}

TEST(PacketPlan, AnEmptyTensorHasNoPackets) {
  EXPECT_EQ(plan_for(0, 1500, 206).packet_count(), 0U);
  EXPECT_EQ(plan_for(0, 1500, 206).wire_bytes(), 0U);
}

TEST(PacketPlan, RefusalsSayWhatWouldDo) {
  const auto message = [](const PacketLimits& limits, const Encoding& encoding,
                          std::size_t length) {
    const auto plan = PacketPlan::make(length, limits, encoding);
    return plan.ok() ? std::string("ok") : plan.status().message();
  };
  EXPECT_NE(message({.trim_bytes = 96}, {}, 10).find("smallest that works here is 106"),
            std::string::npos);
  EXPECT_EQ(message({.trim_bytes = 106}, {}, 10), "ok");
  EXPECT_NE(message({.mtu = 100}, {}, 10).find("MTU 100"), std::string::npos);
  EXPECT_NE(message({}, {.precision = 33}, 10).find("outside 1..32"), std::string::npos);
  EXPECT_NE(message({}, {.row_log2 = 16}, 10).find("2^16"), std::string::npos);
  EXPECT_NE(message({}, {}, 1'000'000'000).find("split the tensor"), std::string::npos);
}

TEST(PacketPlan, TinyPacketsGetShorterRows) {
  const auto plan =
      PacketPlan::make(100'000, {.trim_bytes = 103, .trim_slack_bytes = 0}, {.row_log2 = 15});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->coordinates_per_packet(), 32U);
  EXPECT_EQ(plan->layout().row_log2(), 13U);  // 256 packets of 32
}

}  // namespace
}  // namespace spillway::packetize
