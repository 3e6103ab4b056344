// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/checks/crc32c.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/random.h"

namespace spillway::bench {
namespace {

// Bit by bit, as CRC32C is defined.
std::uint32_t plain_crc(std::uint32_t state, base::ByteView bytes) {
  for (const std::uint8_t byte : bytes) {
    state ^= byte;
    for (int bit = 0; bit < 8; ++bit) {
      state = (state >> 1) ^ ((state & 1) != 0 ? 0x82F63B78U : 0);
    }
  }
  return state;
}

std::vector<std::uint8_t> random_bytes(std::size_t size) {
  base::RandomSequence random(size);
  std::vector<std::uint8_t> bytes(size);
  for (std::uint8_t& byte : bytes) {
    byte = static_cast<std::uint8_t>(random.next_word());
  }
  return bytes;
}

TEST(Crc32c, GivesTheStandardsCheckValue) {
  const std::array<std::uint8_t, 9> digits{'1', '2', '3', '4', '5', '6', '7', '8', '9'};
  EXPECT_EQ(~crc32c(~0U, digits), 0xE3069283U);
}

TEST(Crc32c, OfAnyLengthIsThatOfTheDefinition) {
  for (const std::size_t size : {0, 1, 7, 8, 9, 63, 500, 1023, 1024, 1025, 4000}) {
    const std::vector<std::uint8_t> bytes = random_bytes(size);
    EXPECT_EQ(crc32c(5, bytes), plain_crc(5, bytes)) << size;
  }
}

TEST(Crc32c, CopiesWhatItReads) {
  for (const std::size_t size : {0, 1, 8, 13, 512, 1500}) {
    const std::vector<std::uint8_t> bytes = random_bytes(size);
    std::vector<std::uint8_t> copy(size + 1, 0xEE);
    EXPECT_EQ(copy_crc32c(9, bytes, copy.data()), plain_crc(9, bytes)) << size;
    EXPECT_EQ(copy.back(), 0xEE);
    copy.pop_back();
    EXPECT_EQ(copy, bytes) << size;
  }
}

// Every number of runs, with a last run of every kind of length.
TEST(Crc32c, CopiesRunsSideBySide) {
  constexpr std::size_t kLength = 64;
  const std::vector<std::uint8_t> bytes = random_bytes(8 * (kLength + 4));
  for (std::size_t runs = 0; runs <= 8; ++runs) {
    for (const std::size_t last : {std::size_t{0}, std::size_t{3}, std::size_t{40}, kLength}) {
      std::vector<std::uint8_t> copy(8 * kLength, 0xEE);
      std::vector<std::uint32_t> states(runs);
      for (std::size_t run = 0; run < runs; ++run) {
        states[run] = static_cast<std::uint32_t>(run);
      }
      copy_crc32c({.from = bytes.data(),
                   .from_stride = kLength + 4,
                   .to = copy.data(),
                   .to_stride = kLength,
                   .length = kLength,
                   .last_length = last},
                  states);
      for (std::size_t run = 0; run < runs; ++run) {
        const std::size_t length = run + 1 < runs ? kLength : last;
        const base::ByteView from = base::ByteView(bytes).subspan(run * (kLength + 4), length);
        EXPECT_EQ(states[run], plain_crc(static_cast<std::uint32_t>(run), from));
        EXPECT_TRUE(std::equal(from.begin(), from.end(), copy.begin() + run * kLength));
      }
      const std::size_t written = runs == 0 ? 0 : (runs - 1) * kLength + last;
      EXPECT_TRUE(std::all_of(copy.begin() + written, copy.end(),
                              [](std::uint8_t byte) { return byte == 0xEE; }));
    }
  }
}

}  // namespace
}  // namespace spillway::bench
