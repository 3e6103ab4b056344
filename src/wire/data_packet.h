// SPDX-License-Identifier: Apache-2.0
//
// Data packets: their header as C++ sees it, with named fields instead of packed bits, and whole
// packets with planes and checks, written and read. docs/wire.md draws them.
//
// A reader trusts nothing but received bytes and their checks. It takes a packet in two steps: the
// header with its head (all or nothing), then as many further planes as have a good check. A header
// that was read satisfies every bound stated here, so that code behind it checks none of them
// again. IP and UDP lengths play no part; a packet shorter than its header promises was cut.
//
// Plain values and functions without state; nothing allocates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "wire/packet.h"
#include "wire/packet_auth.h"

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
  kAuthMode,   // encrypted where this job is not, or the reverse
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

// What a message is in its operation.
enum class Phase : std::uint8_t {
  kReduce = 0,        // a contribution on its way to a sum
  kGather = 1,        // a result on its way to who wants it
  kNote = 2,          // what ranks tell each other about an operation: agreements, calls
  kPointToPoint = 3,  // from one rank to another, outside the order of the group's operations
};

// Which message a packet belongs to, within a job and epoch.
struct MessageId {
  std::uint64_t operation = 0;  // its number: all ranks count alike
  std::uint64_t signature = 0;  // of its arguments: ranks that call another one are found out
  std::uint16_t piece = 0;      // which part of the operation's data
  std::uint16_t source = 0;     // the rank that sends it
  Phase phase = Phase::kReduce;

  friend bool operator==(const MessageId&, const MessageId&) = default;
};

// What the transport says about a data packet when it sends it: whose it is, which one it is and
// how it goes. Of a packet that was only read, `number`, `epoch` and the operation have their low
// bits (widen.h).
struct DataStamp {
  MessageId message;
  std::uint64_t number = 0;  // counts the packets to this rank over this path
  std::uint64_t epoch = 0;
  std::uint32_t timestamp_us = 0;  // of the sender's clock, low bits
  std::uint16_t job = 0;
  std::uint16_t destination = 0;
  std::uint16_t packet = 0;  // its index in the message
  std::uint8_t path = 0;
  std::uint8_t priority = 0;    // 0..7, higher is more urgent: about time
  std::uint8_t importance = 0;  // 0..7, higher must not be lost: about loss
  bool last = false;            // nothing follows, as far as the sender knows now
  bool retransmit = false;
  bool report = false;  // its sender waits for a report

  PacketName name() const { return {number, path, PacketName::Kind::kData}; }
};

struct DataHeader {
  DataStamp stamp;
  bool encrypted = false;  // so `scale` is, until the packet is opened
  Codec codec = Codec::kPlanes;
  std::uint8_t row_log2 = 0;   // SPILLWAY_MIN_ROW_LOG2 .. SPILLWAY_MAX_ROW_LOG2
  std::uint8_t rotations = 0;  // 0 only for rows whose scale is 0 or NaN
  std::uint8_t planes = 0;     // 1 .. SPILLWAY_MAX_PLANES
  std::uint8_t slot = 0;
  std::uint16_t row = 0;
  std::uint16_t quanta = 0;      // 1 .. SPILLWAY_MAX_QUANTA
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
  // Bytes of the packet up to the end of its head, and of all of it.
  std::size_t head_end() const {
    return sizeof(spillway_data_header) + SPILLWAY_CHECK_SIZE + head_bytes;
  }
  std::size_t packet_size() const {
    return spillway_packed_size(static_cast<__u32>(plane_bytes()), head_bytes,
                                static_cast<__u8>(codec));
  }
  // Bytes of a tail segment, but for the last.
  std::size_t segment_bytes() const {
    return codec == Codec::kBytes ? plane_bytes() - head_bytes : SPILLWAY_TAIL_SEGMENT;
  }
};

// Writes the 48 header bytes. The header must be valid.
void write_data_header(const DataHeader& header, base::MutableByteView out);

// Reads and validates the header of `packet`; looks at nothing behind it.
PacketFault read_data_header(base::ByteView packet, DataHeader& header);

// Writes a packet of header.packet_size() bytes: `planes` holds header.plane_bytes() bytes.
// header.encrypted is `auth`'s to say. Returns the packet's size.
std::size_t write_data_packet(const DataHeader& header, base::ByteView planes,
                              const PacketAuth& auth, base::MutableByteView out);

struct OpenedPacket {
  DataHeader header;
  Check head_check;
  const PacketAuth* auth = nullptr;  // of its direction: outlives the packet
};

// Verifies a packet whose header was read, and its number made whole, together with its head.
PacketFault verify_head(base::ByteView packet, const PacketAuth& auth, OpenedPacket& opened);

// Reads the header and verifies it; its number is nearest to `near`.
PacketFault open_data_packet(base::ByteView packet, const PacketAuth& auth, OpenedPacket& opened,
                             std::uint64_t near = 0);

struct TrustedPlanes {
  std::size_t bytes;  // of planes, from the first on, that may be decoded
  bool corrupt_tail;  // a tail segment was there and did not match its check
};

// Copies the trusted planes of an opened packet to `out`, which has room for
// header.plane_bytes(): the head, and every tail segment before the first cut or bad one. What lies
// behind them in `out` is overwritten with nothing to rely on.
TrustedPlanes copy_trusted_planes(base::ByteView packet, const OpenedPacket& opened,
                                  base::MutableByteView out);

// The trusted planes of an opened packet of bytes (Codec::kBytes) where they lie, for whoever
// makes something else of them: they are looked at and not moved. Those of an encrypted packet are
// put into `decrypted`, which has room for header.plane_bytes().
base::ByteView trusted_bytes(base::ByteView packet, const OpenedPacket& opened,
                             base::MutableByteView decrypted);

}  // namespace spillway::wire
