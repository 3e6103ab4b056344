// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/bit_packing.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/random.h"

namespace spillway::codec::reference {
namespace {

TEST(BitPacking, EveryWidthComesBack) {
  constexpr std::size_t kCount = 101;
  for (unsigned width = 1; width <= 32; ++width) {
    base::RandomSequence random(width);
    std::vector<std::uint32_t> numbers(kCount);
    std::vector<std::uint8_t> bytes(packed_bytes(kCount, width));
    BitWriter writer(bytes);
    for (std::uint32_t& number : numbers) {
      number = random.next_word() >> (32 - width);
      writer.put(number, width);
    }
    writer.flush();
    BitReader reader(bytes);
    for (const std::uint32_t number : numbers) {
      ASSERT_EQ(reader.get(width), number) << "width " << width;
    }
  }
}

TEST(BitPacking, TheLeastSignificantBitComesFirst) {
  std::array<std::uint8_t, 2> bytes{};
  BitWriter writer(bytes);
  writer.put(1, 1);
  writer.put(0b101, 3);
  writer.put(0b11111, 5);
  writer.flush();
  EXPECT_EQ(bytes[0], 0b11111011);
  EXPECT_EQ(bytes[1], 0b1);
}

TEST(BitPacking, FlushBeginsANewByte) {
  std::array<std::uint8_t, 2> bytes{};
  BitWriter writer(bytes);
  writer.put(1, 1);
  writer.flush();
  writer.put(1, 1);
  writer.flush();
  EXPECT_EQ(bytes[0], 1);
  EXPECT_EQ(bytes[1], 1);
}

TEST(BitPacking, NothingIsReadOrWrittenBeyondTheEnd) {
  std::array<std::uint8_t, 3> bytes = {0, 0xEE, 0xEE};
  BitWriter writer(base::MutableByteView(bytes).first(1));
  writer.put(0xFFFFFFFF, 32);
  writer.put(1, 1);
  writer.flush();
  EXPECT_EQ(bytes[0], 0xFF);
  EXPECT_EQ(bytes[1], 0xEE);
  BitReader reader(base::ByteView(bytes).first(1));
  EXPECT_EQ(reader.get(32), 0xFFU);
  EXPECT_EQ(reader.get(32), 0U);
}

TEST(BitPacking, SizesRoundUpToBytes) {
  EXPECT_EQ(packed_bytes(0, 31), 0U);
  EXPECT_EQ(packed_bytes(1, 1), 1U);
  EXPECT_EQ(packed_bytes(8, 1), 1U);
  EXPECT_EQ(packed_bytes(9, 1), 2U);
  EXPECT_EQ(packed_bytes(360, 1), 45U);
  EXPECT_EQ(packed_bytes(360, 31), 1395U);
}

}  // namespace
}  // namespace spillway::codec::reference
