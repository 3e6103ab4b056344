// SPDX-License-Identifier: Apache-2.0
//
// Data packets: the header as C++ sees it, with named fields instead of packed bits, and readers
// and writers of whole packets with planes and checks. docs/wire.md draws them.
//
// A reader trusts only received bytes and their checks. It takes a packet in two steps: first the
// header with its head (all or nothing), then as many further planes as have a good check. A header
// that was read satisfies every bound stated here, so later code need not check them again. IP and
// UDP lengths play no part; a packet of planes shorter than its header promises was cut. A packet
// of bytes does not say how long it was: one that was cut fails the check of its bytes.
//
// Only the first packet of bytes of a message says the message's signature. The transport fills it
// in for the others, from what it knows of the message (DataStamp::is_signed).
//
// Plain values and stateless functions; nothing allocates.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "wire/packet.h"
#include "wire/packet_auth.h"

namespace spillway::wire {

// ------------------------------------------------------------------ names and counters

// Why a packet was refused, or accepted only in part. Each fault has one counter. Counting
// allocates nothing, because a flood of garbage must stay cheap.
enum class PacketFault : std::uint8_t {
  kNone,
  kTooShort,   // shorter than a header
  kTooLong,    // longer than any Spillway packet
  kVersion,    // another version of the format
  kType,       // not a data packet
  kField,      // a field outside its range, or a reserved bit set
  kAuthMode,   // encrypted in a job that is not, or the reverse
  kCutInHead,  // cut inside the head: nothing left can be trusted
  kHeadCheck,  // the check over header and head does not match
};
inline constexpr unsigned kPacketFaults = 9;
const char* packet_fault_name(PacketFault fault);

// How to read a packet's planes.
enum class Codec : std::uint8_t {
  kPlanes = SPILLWAY_TYPE_PLANES,
  kBytes = SPILLWAY_TYPE_BYTES,  // unchanged bytes; usable only as a whole
};

// A message's role in its operation.
enum class Phase : std::uint8_t {
  kReduce = 0,        // a contribution, sent to the rank that adds it up
  kGather = 1,        // a result, sent to the ranks that want it
  kNote = 2,          // notes between ranks about an operation: agreements, calls
  kPointToPoint = 3,  // between two ranks, outside the order of the group's operations
};

// Names a message within a job and epoch.
struct MessageId {
  std::uint64_t operation = 0;  // sequence number, the same at all ranks
  std::uint64_t signature = 0;  // encodes the arguments; reveals ranks with a different call
  std::uint16_t piece = 0;      // which part of the operation's data
  std::uint16_t source = 0;     // rank that sends it
  Phase phase = Phase::kReduce;

  // Equal, whatever the signatures.
  bool is_alike(const MessageId& other) const {
    return operation == other.operation && piece == other.piece && source == other.source &&
           phase == other.phase;
  }
  friend bool operator==(const MessageId&, const MessageId&) = default;
};

// The number nearest to `near` whose low bits are `low`. Counters have 64 bits and never repeat a
// value, but packets carry only their low bits, so a receiver takes the value nearest to its own
// count. It is right unless the counter moved by half the range of the low bits: eight million lost
// packets in a row over one path. A wrong guess of a packet's number is detected, because the
// packet's check covers the whole number.
template <unsigned kBits>
constexpr std::uint64_t widen(std::uint64_t low, std::uint64_t near) {
  constexpr std::uint64_t kRange = std::uint64_t{1} << kBits;
  const std::uint64_t ahead = (low - near) & (kRange - 1);
  const bool is_behind = ahead >= kRange / 2 && near + ahead >= kRange;
  return near + ahead - (is_behind ? kRange : 0);
}
template <std::unsigned_integral Low>
constexpr std::uint64_t widen(Low low, std::uint64_t near) {
  return widen<8 * sizeof(Low)>(low, near);
}

// Operations, numbers and timestamps, as headers carry them.
constexpr std::uint32_t low_counter(std::uint64_t counter) {
  return static_cast<std::uint32_t>(counter & ((1U << SPILLWAY_COUNTER_BITS) - 1));
}
constexpr std::uint64_t widen_counter(std::uint64_t low, std::uint64_t near) {
  return widen<SPILLWAY_COUNTER_BITS>(low, near);
}

// ------------------------------------------------------------------ headers

// The transport's fields of a data packet: which message and packet it is, and how it is sent. In a
// packet just read, `number`, `epoch` and the operation hold only their low bits; see widen().
struct DataStamp {
  MessageId message;
  std::uint64_t number = 0;  // counts packets to this rank over this path
  std::uint64_t epoch = 0;
  std::uint32_t timestamp_us = 0;  // sender's clock, low bits
  std::uint16_t job = 0;
  std::uint16_t destination = 0;
  std::uint16_t packet = 0;  // index in the message
  std::uint8_t path = 0;
  std::uint8_t priority = 0;    // 0..7, higher is more urgent (time)
  std::uint8_t importance = 0;  // 0..7, higher must not be lost (loss)
  // Bits, so that a packet of the simulator fills two cache lines.
  bool last : 1 = false;  // the sender has nothing further queued now
  bool retransmit : 1 = false;
  bool report : 1 = false;         // the sender waits for a report
  bool requires_some : 1 = false;  // a PROBE says how many packets of the message must arrive
  bool is_signed : 1 = true;       // `message` has its signature

  PacketName name() const { return {number, path, PacketName::Kind::kData}; }
};

struct DataHeader {
  DataStamp stamp;
  bool encrypted = false;  // `scale` stays encrypted until the packet is opened
  Codec codec = Codec::kPlanes;
  std::uint16_t byte_count = 0;  // Codec::kBytes: bytes carried, as far as the packet reaches
  bool is_code = false;          // Codec::kBytes: floats as code, in fewer packets

  // The rest is of Codec::kPlanes.
  std::uint8_t row_log2 = 0;   // SPILLWAY_MIN_ROW_LOG2 .. SPILLWAY_MAX_ROW_LOG2
  std::uint8_t rotations = 0;  // 0 only for rows with scale 0 or NaN
  std::uint8_t planes = 0;     // 1 .. SPILLWAY_MAX_PLANES
  std::uint8_t slot = 0;
  std::uint16_t row = 0;
  std::uint16_t quanta = 0;        // 1 .. SPILLWAY_MAX_QUANTA
  std::uint16_t head_bytes = 0;    // > 0, a multiple of 4, at most plane_bytes()
  bool has_segmented_tail = true;  // a check per SPILLWAY_TAIL_SEGMENT bytes behind the head
  float scale = 0.0F;              // 0, NaN, or finite and positive

  // Coordinates [first(), first() + count()) of the row.
  std::size_t first() const { return std::size_t{slot} * quanta * SPILLWAY_QUANTUM; }
  std::size_t count() const {
    const std::size_t length = std::size_t{1} << row_log2;
    return std::min(std::size_t{quanta} * SPILLWAY_QUANTUM, length - std::min(length, first()));
  }
  // Bytes of all planes, or of a packet of bytes.
  std::size_t payload_bytes() const {
    return codec == Codec::kBytes ? byte_count : count() / 8 * planes;
  }
  std::size_t header_size() const {
    return codec == Codec::kBytes ? spillway_bytes_header_size(stamp.packet)
                                  : sizeof(spillway_planes_header);
  }
  // Bytes of the packet up to the end of its head, and in total.
  std::size_t head_end() const { return header_size() + SPILLWAY_CHECK_SIZE + head_bytes; }
  std::size_t packet_size() const {
    return codec == Codec::kBytes
               ? spillway_bytes_overhead(stamp.packet) + std::size_t{byte_count}
               : spillway_packed_size(static_cast<__u32>(payload_bytes()), head_bytes, tail());
  }
  // Bytes of every tail segment but the last.
  std::size_t segment_bytes() const {
    return tail() == SPILLWAY_TAIL_SEGMENTS ? SPILLWAY_TAIL_SEGMENT : payload_bytes() - head_bytes;
  }
  std::uint8_t tail() const {
    return codec == Codec::kPlanes && has_segmented_tail ? SPILLWAY_TAIL_SEGMENTS
                                                         : SPILLWAY_TAIL_WHOLE;
  }
};

// ------------------------------------------------------------------ whole packets

// Writes the header. It must be valid.
void write_data_header(const DataHeader& header, base::MutableByteView out);

// Reads and validates the header of `packet`; ignores everything after it but its length.
PacketFault read_data_header(base::ByteView packet, DataHeader& header);

// Writes a packet of header.packet_size() bytes and returns that size. `payload` holds
// header.payload_bytes() bytes. `auth`, not header.encrypted, decides whether it is encrypted.
std::size_t write_data_packet(const DataHeader& header, base::ByteView payload,
                              const PacketAuth& auth, base::MutableByteView out);

struct OpenedPacket {
  DataHeader header;
  const PacketAuth* auth = nullptr;  // for this packet's direction; outlives the packet
};

// Verifies header and head of a packet whose header was read and whose number was widened.
PacketFault verify_head(base::ByteView packet, const PacketAuth& auth, OpenedPacket& opened);

// Reads the header and verifies it, with the number nearest to `near`.
PacketFault open_data_packet(base::ByteView packet, const PacketAuth& auth, OpenedPacket& opened,
                             std::uint64_t near = 0);

struct TrustedPlanes {
  std::size_t bytes;  // leading bytes of the payload that may be used
  // A tail segment arrived and did not match its check; or a packet of bytes was cut, which its
  // length does not show.
  bool corrupt_tail;
};

// Copies the trusted payload of an opened packet to `out`, which has room for
// header.payload_bytes(). The head and every tail segment before the first missing or corrupt one
// are trusted; of bytes, all or nothing. The rest of `out` may be overwritten with garbage.
TrustedPlanes copy_trusted_planes(base::ByteView packet, const OpenedPacket& opened,
                                  base::MutableByteView out);

// Returns the trusted bytes of an opened packet (Codec::kBytes) in place, without copying: all or
// none. Those of an encrypted packet are decrypted into `decrypted`, which has room for
// header.payload_bytes().
base::ByteView trusted_bytes(base::ByteView packet, const OpenedPacket& opened,
                             base::MutableByteView decrypted);

}  // namespace spillway::wire
