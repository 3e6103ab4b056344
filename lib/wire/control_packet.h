// SPDX-License-Identifier: Apache-2.0
//
// Control packets: PROBE, STOP, BITMAP, CREDIT, WAIT, LEAVE. Each is idempotent: it states totals
// since the start, never increments. Lost, duplicated or reordered control packets therefore do no
// harm. docs/wire.md draws them; docs/algorithms.md describes the exchange.
//
// The reader accepts any bytes and verifies the check before it believes a field; a packet that it
// accepts satisfies the bounds stated here. Nothing allocates: a ControlPacket has room for the
// largest body.
#pragma once

#include <array>
#include <cstdint>
#include <new>
#include <string_view>

#include "base/bytes.h"
#include "wire/data_packet.h"
#include "wire/packet_auth.h"

namespace spillway::wire {

enum class ControlType : std::uint8_t {
  kProbe = SPILLWAY_TYPE_PROBE,
  kStop = SPILLWAY_TYPE_STOP,
  kBitmap = SPILLWAY_TYPE_BITMAP,
  kCredit = SPILLWAY_TYPE_CREDIT,
  kWait = SPILLWAY_TYPE_WAIT,
  kLeave = SPILLWAY_TYPE_LEAVE,
};

// Why a rank left the operation.
enum class FailureCause : std::uint8_t {
  kClosed = 0,    // it had finished
  kPeerDead = 1,  // the culprit was silent for too long
  kMismatch = 2,  // the culprit called another operation
  kAborted = 3,   // the culprit's owner aborted
  kTimeout = 4,   // the culprit took too long
  kInternal = 5,  // the culprit had an internal error
};
inline constexpr unsigned kFailureCauses = 6;

// How a message ended at its receiver.
enum class Outcome : std::uint8_t {
  kEverything = 0,    // every packet was delivered
  kWithinBudget = 1,  // the loss bound is kept and all important packets arrived
  kDeadline = 2,      // the deadline passed first; the bound may be broken
  kCancelled = 3,     // the receiver cancelled it, or no longer has a record of it
  kPeerDead = 4,      // the peer was silent for too long; never on the wire
};
inline constexpr unsigned kOutcomes = 5;
const char* outcome_name(Outcome outcome);

// The delivered packets that one BITMAP reports: [first, first + count).
struct BitmapRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;  // 1 .. SPILLWAY_MAX_BITMAP_BYTES * 8
  std::array<std::uint8_t, SPILLWAY_MAX_BITMAP_BYTES> bits;

  bool delivered(std::uint32_t packet) const {
    const std::uint32_t bit = packet - first;
    return (bits[bit / 8] >> (bit % 8) & 1) != 0;
  }
};

// The text of one rank's call.
struct CallText {
  std::uint16_t rank = 0;
  bool is_whole = false;   // false: only what the signature encodes
  std::uint8_t bytes = 0;  // <= SPILLWAY_MAX_CALL_TEXT
  std::array<char, SPILLWAY_MAX_CALL_TEXT> text;

  // Unsanitized bytes from the peer: not fit for a terminal.
  std::string_view view() const { return {text.data(), bytes}; }
};

// The calls of two ranks that called different operations. A text is empty if the call is unknown.
struct Mismatch {
  std::uint64_t operation = 0;
  bool is_point_to_point = false;  // `operation` counts messages from one of them to the other
  std::array<CallText, 2> calls;
};

struct ControlPacket {
  ControlPacket() { ::new (&bitmap) Bitmap; }  // leaves the bits uninitialized

  ControlType type = ControlType::kWait;
  std::uint16_t job = 0;
  std::uint64_t epoch = 0;        // counters of a packet just read hold only their low bits
  std::uint16_t source = 0;       // rank that sent this packet
  std::uint16_t destination = 0;  // rank that it is for
  MessageId message;              // the message that it is about; its source sends the data
  std::uint8_t path = 0;
  std::uint32_t timestamp_us = 0;
  std::uint64_t sequence = 0;
  std::uint32_t generation = 0;

  // The body. `type` says which of the following members is valid.
  struct Probe {
    std::uint32_t packets = 0;    // 1 .. SPILLWAY_MAX_PACKETS
    std::uint32_t important = 0;  // <= packets
    std::uint32_t transmitted = 0;
    std::uint32_t settled = 0;  // low bits; see transport/credit.h
    bool all_sent = false;
  } probe;
  struct Stop {
    Outcome outcome = Outcome::kEverything;
    std::uint32_t delivered = 0;
  } stop;
  struct Bitmap {
    BitmapRange range;
    std::uint32_t missing = 0;
    std::uint32_t allowed = 0;
  };
  // A union, because thousands of packets are kept.
  union {
    Bitmap bitmap;      // for BITMAP
    Mismatch mismatch;  // for LEAVE with cause kMismatch
  };
  struct Credit {
    std::uint32_t granted = 0;  // low bits
    bool answer = false;
    std::uint8_t path_count = 0;  // <= SPILLWAY_MAX_PATH_REPORTS
    std::array<spillway_path_report, SPILLWAY_MAX_PATH_REPORTS> paths;
  } credit;

  struct Leave {
    std::uint16_t culprit = 0;
    FailureCause cause = FailureCause::kClosed;
  } leave;

  PacketName name() const { return {sequence, path, PacketName::Kind::kControl}; }
  // Bytes on the wire.
  std::size_t size() const;
};

// Size of the longest control packet.
inline constexpr std::size_t kMaxControlPacket = sizeof(spillway_control_header) +
                                                 sizeof(spillway_bitmap_body) +
                                                 SPILLWAY_MAX_BITMAP_BYTES + SPILLWAY_CHECK_SIZE;

// Writes a valid packet; returns its size.
std::size_t write_control_packet(const ControlPacket& packet, const PacketAuth& auth,
                                 base::MutableByteView out);

// Reads the header without verifying it, so that the caller can look up the sender's keys. Returns
// PacketFault::kType if this is not a control packet.
PacketFault read_control_header(base::ByteView bytes, ControlPacket& packet);

// Verifies a packet whose header was read and whose sequence was widened; then reads its body.
PacketFault verify_control_packet(base::ByteView bytes, const PacketAuth& auth,
                                  ControlPacket& packet);

// Reads the header and verifies the packet, with the sequence nearest to `near`.
PacketFault open_control_packet(base::ByteView bytes, const PacketAuth& auth, ControlPacket& packet,
                                std::uint64_t near = 0);

}  // namespace spillway::wire
