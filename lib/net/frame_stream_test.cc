// SPDX-License-Identifier: Apache-2.0
#include "net/frame_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace spillway::net {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes packet_of(std::size_t size, std::uint8_t first) {
  Bytes packet(size);
  std::iota(packet.begin(), packet.end(), first);
  return packet;
}

void write(FrameWriter& writer, const Bytes& packet) {
  std::copy(packet.begin(), packet.end(), writer.room().begin());
  writer.commit(packet.size());
}

// What a reader returns for a stream that arrives in pieces of this size.
std::vector<Bytes> read(FrameReader& reader, base::ByteView stream, std::size_t piece) {
  std::vector<Bytes> packets;
  while (!stream.empty()) {
    base::ByteView bytes = stream.first(std::min(piece, stream.size()));
    stream = stream.subspan(bytes.size());
    while (const auto packet = reader.next(bytes)) {
      packets.emplace_back(packet->begin(), packet->end());
    }
    EXPECT_TRUE(bytes.empty() || reader.is_broken());
  }
  return packets;
}

TEST(FrameStream, PacketsComeBackInWhateverPiecesTheyArrive) {
  const std::vector<Bytes> packets = {packet_of(1, 1), packet_of(SPILLWAY_MAX_PACKET, 2),
                                      packet_of(76, 3), packet_of(4, 4), packet_of(1452, 5)};
  FrameWriter writer;
  for (const Bytes& packet : packets) {
    write(writer, packet);
  }
  for (const std::size_t piece : {1U, 2U, 3U, 5U, 80U, 4096U, 100'000U}) {
    FrameReader reader;
    EXPECT_EQ(read(reader, writer.waiting(), piece), packets) << piece;
    EXPECT_FALSE(reader.is_broken());
  }
}

TEST(FrameStream, ALengthThatCannotBeEndsIt) {
  for (const std::uint32_t length :
       {std::uint32_t{0}, std::uint32_t{SPILLWAY_MAX_PACKET + 1}, UINT32_MAX}) {
    for (const std::size_t piece : {1U, 100U}) {
      FrameWriter writer;
      write(writer, packet_of(10, 1));
      Bytes stream(writer.waiting().begin(), writer.waiting().end());
      stream.resize(stream.size() + 50);
      base::store_le(stream.data() + writer.waiting().size(), length);
      FrameReader reader;
      EXPECT_EQ(read(reader, stream, piece).size(), 1U);
      EXPECT_TRUE(reader.is_broken());
      EXPECT_TRUE(read(reader, writer.waiting(), piece).empty());  // for good
    }
  }
}

TEST(FrameStream, WhatLeavesInPartGoesOnWhereItStopped) {
  FrameWriter writer;
  FrameReader reader;
  std::vector<Bytes> written;
  std::vector<Bytes> came;
  for (std::size_t i = 0; i < 300; ++i) {
    written.push_back(packet_of(1 + i * 37 % 5000, static_cast<std::uint8_t>(i)));
    write(writer, written.back());
    const std::size_t taken = std::min<std::size_t>(writer.waiting().size(), 1 + i * 911 % 4000);
    for (Bytes& packet : read(reader, writer.waiting().first(taken), taken)) {
      came.push_back(std::move(packet));
    }
    writer.sent(taken);
  }
  for (Bytes& packet : read(reader, writer.waiting(), 1000)) {
    came.push_back(std::move(packet));
  }
  EXPECT_EQ(came, written);
}

}  // namespace
}  // namespace spillway::net
