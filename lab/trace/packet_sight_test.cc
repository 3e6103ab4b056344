// SPDX-License-Identifier: Apache-2.0
#include "lab/trace/packet_sight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "switch/dataplane/frame.h"

namespace spillway::lab {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kHeaders =
    SPILLWAY_ETHERNET_HEADER + SPILLWAY_IPV4_HEADER + SPILLWAY_UDP_HEADER;

// A data packet of 16 planes of 704 coordinates, 80 bytes of head, over IPv4.
Bytes data_frame(std::size_t payload_bytes) {
  Bytes frame(kHeaders + payload_bytes);
  frame[5] = 7;  // last byte of the receiver's address
  frame[12] = 0x08;
  std::uint8_t* ip = frame.data() + SPILLWAY_ETHERNET_HEADER;
  ip[0] = 0x45;
  ip[1] = 9 << 2 | SPILLWAY_ECN_ECT0;
  ip[9] = SPILLWAY_PROTOCOL_UDP;
  spillway_store_be16(ip + 2, static_cast<std::uint32_t>(frame.size()) - SPILLWAY_ETHERNET_HEADER);
  spillway_store_be16(ip + SPILLWAY_IPV4_HEADER + 4,
                      static_cast<std::uint32_t>(SPILLWAY_UDP_HEADER + payload_bytes));
  spillway_data_header header = {};
  header.common.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_DATA;
  header.common.packet = 17;
  header.code = SPILLWAY_CODEC_PLANES << 4 | SPILLWAY_MAX_ROW_LOG2;
  header.planes = 1 << 6 | 16;
  header.quanta = 22;
  header.head_words = 20;
  header.scale = 0x3F800000;
  std::memcpy(frame.data() + kHeaders, &header, sizeof(header));
  return frame;
}

TEST(PacketSight, ReadsAWholePacketFromItsFirstBytes) {
  Bytes frame = data_frame(1400);
  const std::optional<PacketSight> sight =
      read_sight({frame.data(), SPILLWAY_LONGEST_HEADERS}, 1442);
  ASSERT_TRUE(sight.has_value());
  EXPECT_EQ(sight->bytes, 1442U);
  EXPECT_EQ(+sight->header.packet, 17);
  EXPECT_EQ(sight->ecn, SPILLWAY_ECN_ECT0);
  EXPECT_EQ(receiver_of(frame), (HardwareAddress{0, 0, 0, 0, 0, 7}));
}

TEST(PacketSight, KnowsAPacketThatWasCutAndKeptItsLengths) {
  Bytes frame = data_frame(1400);
  const std::optional<PacketSight> sight =
      read_sight({frame.data(), SPILLWAY_LONGEST_HEADERS}, 256);
  ASSERT_TRUE(sight.has_value());
  EXPECT_EQ(sight->bytes, 256U);
}

TEST(PacketSight, TakesNothingElseForSpillways) {
  Bytes other = data_frame(1400);
  other[kHeaders] = (SPILLWAY_WIRE_VERSION + 1) << 4 | SPILLWAY_TYPE_DATA;
  EXPECT_FALSE(read_sight(other, 1442).has_value());
  Bytes tcp = data_frame(1400);
  tcp[SPILLWAY_ETHERNET_HEADER + 9] = 6;
  EXPECT_FALSE(read_sight(tcp, 1442).has_value());
}

TEST(PacketSight, ReadsNoFurtherThanThereAreBytes) {
  const Bytes frame = data_frame(1400);
  for (std::size_t kept = 0; kept < kHeaders + sizeof(spillway_data_header); ++kept) {
    Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(kept));
    EXPECT_FALSE(read_sight(cut, 1442).has_value()) << kept;
    EXPECT_FALSE(read_sight(cut, static_cast<std::uint32_t>(kept)).has_value()) << kept;
  }
}

}  // namespace
}  // namespace spillway::lab
