// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <gtest/gtest.h>

#include <array>

namespace spillway::base {
namespace {

TEST(ByteWriter, WritesLittleEndianAndReaderReadsItBack) {
  std::array<std::uint8_t, 7> bytes{};
  ByteWriter writer(bytes);
  writer.write<std::uint8_t>(0xAB);
  writer.write<std::uint16_t>(0x1234);
  writer.write<float>(1.0F);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(bytes, (std::array<std::uint8_t, 7>{0xAB, 0x34, 0x12, 0, 0, 0x80, 0x3F}));

  ByteReader reader(bytes);
  EXPECT_EQ(reader.read<std::uint8_t>(), 0xAB);
  EXPECT_EQ(reader.read<std::uint16_t>(), 0x1234);
  EXPECT_EQ(reader.read<float>(), 1.0F);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0U);
}

TEST(ByteReader, TurnsBadAtTheFirstReadPastTheEndAndStaysBad) {
  const std::array<std::uint8_t, 3> bytes{1, 2, 3};
  ByteReader reader(bytes);
  EXPECT_EQ(reader.read<std::uint32_t>(), 0U);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.read<std::uint8_t>(), 0);  // although one byte is left
  EXPECT_TRUE(reader.take(1).empty());
}

TEST(ByteWriter, NeverWritesPastItsSpan) {
  std::array<std::uint8_t, 4> bytes{9, 9, 9, 9};
  ByteWriter writer(MutableByteView(bytes).first(3));
  writer.write<std::uint16_t>(0);
  writer.write<std::uint16_t>(0);
  EXPECT_FALSE(writer.ok());
  EXPECT_EQ(bytes, (std::array<std::uint8_t, 4>{0, 0, 9, 9}));
}

}  // namespace
}  // namespace spillway::base
