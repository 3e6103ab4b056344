// SPDX-License-Identifier: Apache-2.0
//
// The header of a data packet as C++ sees it: named fields instead of packed bits, and the rules
// that make one valid. Reading takes any bytes; what it accepts satisfies every bound stated here,
// so that code behind it needs no further checks on these fields.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "wire/packet.h"

namespace spillway::wire {

// Why a packet was not taken, or taken only in part. One counter each; no allocation, because a
// flood of garbage must stay cheap.
enum class PacketFault : std::uint8_t {
  kNone,
  kTooShort,   // not even a header
  kTooLong,    // longer than any Spillway packet
  kVersion,    // another version of the format
  kType,       // not a data packet
  kField,      // a field outside its range, or a reserved bit set
  kAuthMode,   // keyed where this job is not, or the reverse
  kCutInHead,  // trimmed below the head: nothing left that can be trusted
  kHeadCheck,  // the check over header and head does not match
};
inline constexpr unsigned kPacketFaults = 9;
const char* packet_fault_name(PacketFault fault);

// How a packet's planes are to be read.
enum class Codec : std::uint8_t {
  kPlanes = SPILLWAY_CODEC_PLANES,
  kBytes = SPILLWAY_CODEC_BYTES,  // as they are; of use only whole
};

enum class Phase : std::uint8_t { kReduce = 0, kGather = 1, kBroadcast = 2, kPointToPoint = 3 };

// Which message a packet belongs to, within a job and epoch.
struct MessageId {
  std::uint32_t step = 0;
  std::uint16_t bucket = 0;
  std::uint16_t shard = 0;
  std::uint16_t source = 0;
  Phase phase = Phase::kReduce;

  friend bool operator==(const MessageId&, const MessageId&) = default;
};

struct DataHeader {
  std::uint16_t job = 0;
  std::uint16_t epoch = 0;
  MessageId message;
  std::uint16_t packet = 0;
  bool keyed = false;
  bool last = false;
  bool retransmit = false;
  bool report = false;
  std::uint8_t priority = 0;    // 0..7, higher is more urgent: about time
  std::uint8_t importance = 0;  // 0..7, higher must not be lost: about loss
  std::uint8_t path = 0;
  std::uint8_t path_sequence = 0;
  std::uint32_t timestamp_us = 0;

  Codec codec = Codec::kPlanes;
  std::uint8_t row_log2 = 0;   // SPILLWAY_MIN_ROW_LOG2 .. SPILLWAY_MAX_ROW_LOG2
  std::uint8_t rotations = 0;  // 0 only for rows whose scale is 0 or NaN
  std::uint8_t planes = 0;     // 1 .. SPILLWAY_MAX_PLANES
  std::uint16_t row = 0;
  std::uint8_t slot = 0;
  std::uint8_t quanta = 0;       // > 0
  std::uint16_t head_bytes = 0;  // > 0, a multiple of 4, at most plane_bytes()
  float scale = 0.0F;            // 0, NaN, or finite and positive

  // Coordinates [first(), first() + count()) of the row.
  std::size_t first() const { return std::size_t{slot} * quanta * SPILLWAY_QUANTUM; }
  std::size_t count() const {
    const std::size_t length = std::size_t{1} << row_log2;
    return std::min(std::size_t{quanta} * SPILLWAY_QUANTUM, length - std::min(length, first()));
  }
  // Bytes of all planes together.
  std::size_t plane_bytes() const { return count() / 8 * planes; }
  std::size_t check_size() const { return keyed ? SPILLWAY_TAG_SIZE : SPILLWAY_CRC_SIZE; }
  // Bytes of the packet up to the end of its head, and of all of it.
  std::size_t head_end() const { return sizeof(spillway_data_header) + check_size() + head_bytes; }
  std::size_t packet_size() const {
    const std::size_t tail = plane_bytes() - head_bytes;
    const std::size_t segments = (tail + SPILLWAY_TAIL_SEGMENT - 1) / SPILLWAY_TAIL_SEGMENT;
    return head_end() + tail + segments * check_size();
  }
};

// Writes the 36 header bytes. The header must be valid.
void write_data_header(const DataHeader& header, base::MutableByteView out);

// Reads and validates the header of `packet`; looks at nothing behind it.
PacketFault read_data_header(base::ByteView packet, DataHeader& header);

}  // namespace spillway::wire
