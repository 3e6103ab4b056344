// SPDX-License-Identifier: Apache-2.0
#include "codec/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace spillway::codec {
namespace {

// How many of a chunk's `numbers` are in lane `lane`.
std::size_t lane_length(std::size_t numbers, unsigned lane) {
  const std::size_t first = lane * kChunkWords;
  return numbers <= first ? 0 : std::min(kChunkWords, numbers - first);
}

}  // namespace

base::Result<LaneLayout> LaneLayout::make(unsigned contributors, std::uint32_t largest) {
  if (contributors == 0 || largest == 0) {
    return base::invalid_argument("lanes need contributors, and numbers other than zero");
  }
  const std::uint64_t sum = std::uint64_t{contributors} * largest;
  const auto bits = static_cast<unsigned>(std::bit_width(sum));
  if (bits > kMaxLaneBits) {
    return base::invalid_argument(
        fmt::format("{} numbers up to {} do not add up within {} bits: use fewer ranks or bits",
                    contributors, largest, kMaxLaneBits));
  }
  return LaneLayout{bits, 64 / bits};
}

void pack_chunk(const LaneLayout& layout, std::span<const std::uint32_t> numbers,
                ChunkWords words) {
  SPILLWAY_CHECK(numbers.size() <= layout.values_per_chunk());
  std::fill(words.begin(), words.end(), 0);
  for (unsigned lane = 0; lane < layout.lanes; ++lane) {
    const std::size_t length = lane_length(numbers.size(), lane);
    if (length == 0) {
      break;
    }
    const std::uint32_t* const from = numbers.data() + lane * kChunkWords;
    const unsigned shift = lane * layout.bits;
    for (std::size_t i = 0; i < length; ++i) {
      words[i] |= std::uint64_t{from[i]} << shift;
    }
  }
}

void unpack_chunk(const LaneLayout& layout, ConstChunkWords words, std::span<std::uint32_t> sums) {
  SPILLWAY_CHECK(sums.size() <= layout.values_per_chunk());
  const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << layout.bits) - 1);
  for (unsigned lane = 0; lane < layout.lanes; ++lane) {
    const std::size_t length = lane_length(sums.size(), lane);
    if (length == 0) {
      break;
    }
    std::uint32_t* const to = sums.data() + lane * kChunkWords;
    const unsigned shift = lane * layout.bits;
    for (std::size_t i = 0; i < length; ++i) {
      to[i] = static_cast<std::uint32_t>(words[i] >> shift) & mask;
    }
  }
}

}  // namespace spillway::codec
