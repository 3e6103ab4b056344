// SPDX-License-Identifier: Apache-2.0
//
// Sum packets as hosts see them: written with their tags, read and verified. docs/wire.md draws
// them; wire/sum_packet.h explains each kind.
//
// A reader takes a packet in two steps: first the header, which satisfies every bound stated here,
// then the words under the tag. A packet cut on the way has no words and nothing in it can be
// trusted. Its arrival only shows that its words were lost.
//
// Plain values and stateless functions; nothing allocates.
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
  std::uint8_t urgency = 0;  // the higher takes a switch's slot
  std::array<std::uint8_t, SPILLWAY_SUM_LEVELS> need{};
  ChunkName chunk;  // a packet just read has the low bits of the operation only
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
  // Words to write, owned by the caller: SPILLWAY_SUM_WORDS of them if the kind has words.
  std::span<const std::uint64_t> words{};

  bool is_marked(std::uint8_t mark) const { return (marks & mark) != 0; }
};

// Returns the packet's size.
std::size_t write_sum_packet(const SumPacket& packet, const SumAuth& auth,
                             base::MutableByteView out);

// Reads the header without verifying a tag. Refuses packets whose direction (to or from the owner)
// does not fit their kind, and parts of no rank.
PacketFault read_sum_header(base::ByteView bytes, SumPacket& packet);
// True if the packet is shorter than it was sent.
bool is_cut(base::ByteView bytes, const SumPacket& packet);

// Verifies a packet whose header was read and whose operation was widened, and copies its words, if
// its kind has any.
PacketFault verify_sum_packet(base::ByteView bytes, const SumAuth& auth, const SumPacket& packet,
                              std::span<std::uint64_t, SPILLWAY_SUM_WORDS> words);

}  // namespace spillway::wire
