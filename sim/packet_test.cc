// SPDX-License-Identifier: Apache-2.0
#include "sim/packet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace spillway::sim {
namespace {

TEST(PacketPool, ReferencesStayGoodWhileThePoolGrows) {
  PacketPool pool;
  Packet& first = pool[pool.allocate()];
  first.bytes = 77;
  for (int i = 0; i < 10'000; ++i) {
    pool.allocate();
  }
  EXPECT_EQ(first.bytes, 77U);
  EXPECT_EQ(pool.in_use(), 10'001U);
}

TEST(PacketPool, GivesReleasedPacketsOutAgainAsNew) {
  PacketPool pool;
  const PacketIndex index = pool.allocate();
  pool[index].bytes = 1'500;
  pool[index].corrupt = true;
  pool.attach_payload(pool[index], 100);
  EXPECT_EQ(pool.payloads_in_use(), 1U);
  pool.release(index);
  EXPECT_EQ(pool.in_use(), 0U);
  EXPECT_EQ(pool.payloads_in_use(), 0U);
  const PacketIndex again = pool.allocate();
  EXPECT_EQ(again, index);
  EXPECT_EQ(pool[again].bytes, 0U);
  EXPECT_FALSE(pool[again].corrupt);
  EXPECT_TRUE(pool.payload(pool[again]).empty());
}

TEST(PacketPool, TrimCountsWhatTheBufferLeavesOut) {
  PacketPool pool;
  Packet& datagram = pool[pool.allocate()];
  datagram.bytes = 1'042;
  pool.attach_payload(datagram, 1'000);
  pool.trim(datagram, 206);
  EXPECT_EQ(pool.payload(datagram).size(), 206U - kFrameHeaderBytes);
  Packet& frame = pool[pool.allocate()];
  frame.bytes = 1'042;
  frame.absent_bytes = 0;
  pool.attach_payload(frame, 1'042);
  pool.trim(frame, 206);
  EXPECT_EQ(pool.payload(frame).size(), 206U);
}

TEST(PacketPool, AFrameGrowsWithItsPayload) {
  PacketPool pool;
  Packet& packet = pool[pool.allocate()];
  packet.bytes = 10 + kFrameHeaderBytes;
  std::ranges::fill(pool.attach_payload(packet, 10), std::uint8_t{7});
  pool.resize_payload(packet, 30);
  EXPECT_EQ(packet.bytes, 30 + kFrameHeaderBytes);
  ASSERT_EQ(pool.payload(packet).size(), 30U);
  EXPECT_EQ(pool.payload(packet)[9], 7);
  EXPECT_EQ(pool.payload(packet)[10], 0);
}

TEST(PacketPool, ADuplicateHasItsOwnBytes) {
  PacketPool pool;
  const PacketIndex original = pool.allocate();
  std::ranges::fill(pool.attach_payload(pool[original], 4), std::uint8_t{1});
  pool[original].label = 9;
  const PacketIndex copy = pool.duplicate(original);
  pool.payload(pool[copy])[0] = 2;
  EXPECT_EQ(pool.payload(pool[original])[0], 1);
  EXPECT_EQ(pool.payload(pool[copy])[1], 1);
  EXPECT_EQ(pool[copy].label, 9U);
}

TEST(PacketPool, TrimmingCutsTheFrameAndItsPayload) {
  PacketPool pool;
  const PacketIndex index = pool.allocate();
  pool[index].bytes = 1'500;
  pool.attach_payload(pool[index], 1'500 - kFrameHeaderBytes);
  pool.trim(pool[index], 256);
  EXPECT_EQ(pool[index].bytes, 256U);
  EXPECT_EQ(pool.payload(pool[index]).size(), 256 - kFrameHeaderBytes);
}

}  // namespace
}  // namespace spillway::sim
