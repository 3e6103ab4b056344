// SPDX-License-Identifier: Apache-2.0
//
// Sum packets as hosts see them: written with their tags, read and verified. docs/wire.md draws
// them, wire/sum_packet.h says what each kind is for.
//
// A reader takes a packet in two steps: the header, which satisfies every bound stated here, then
// the words under the tag. One that was cut on the way has no words and nothing that can be
// trusted; that it came tells that its words did not.
//
// Plain values and functions without state; nothing allocates.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "wire/data_packet.h"
#include "wire/sum_tag.h"

namespace spillway::wire {

enum class SumKind : std::uint8_t {
  kPart = SPILLWAY_SUM_PART,
  kRepeat = SPILLWAY_SUM_REPEAT,
  kFlush = SPILLWAY_SUM_FLUSH,
  kResult = SPILLWAY_SUM_RESULT,
  kWant = SPILLWAY_SUM_WANT,
};

struct SumPacket {
  SumKind kind = SumKind::kPart;
  std::uint8_t marks = 0;    // SPILLWAY_SUM_ADDED and so on
  std::uint8_t urgency = 0;  // to whom a slot goes
  std::array<std::uint8_t, SPILLWAY_SUM_LEVELS> need{};
  ChunkName chunk;  // the operation's low bits, of one that was only read
  RankSet ranks;
  RankSet recipients;
  std::uint16_t job = 0;
  std::uint64_t epoch = 0;  // low bits
  std::uint16_t source = 0;
  std::uint16_t destination = 0;
  std::uint8_t priority = 0;
  std::uint8_t importance = 0;
  std::uint8_t path = 0;
  std::uint32_t timestamp_us = 0;
  // To be written: the caller's, SPILLWAY_SUM_WORDS of them where the kind has words.
  std::span<const std::uint64_t> words{};

  bool is_marked(std::uint8_t mark) const { return (marks & mark) != 0; }
};

// Returns its size.
std::size_t write_sum_packet(const SumPacket& packet, const SumAuth& auth,
                             base::MutableByteView out);

// The header as it stands there, before any tag is looked at. One that goes another way than its
// kind does, to the owner or from it, or that has parts of nobody, is refused.
PacketFault read_sum_header(base::ByteView bytes, SumPacket& packet);
// Whether there is less of it than was sent.
bool is_cut(base::ByteView bytes, const SumPacket& packet);

// Verifies a packet whose header was read, and the number of its operation made whole, and copies
// its words, if its kind has any.
PacketFault verify_sum_packet(base::ByteView bytes, const SumAuth& auth, const SumPacket& packet,
                              std::span<std::uint64_t, SPILLWAY_SUM_WORDS> words);

}  // namespace spillway::wire
