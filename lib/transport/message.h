// SPDX-License-Identifier: Apache-2.0
//
// The parameters of a message, and the report of how it ended.
//
// A message is one piece of an operation's data for one peer: a known number of packets that need
// no order. Its loss policy says how many of them may stay missing; a packet counts as delivered
// when at least `min_planes` of its planes arrived. Packets of importance
// SPILLWAY_IMPORTANCE_REQUIRED must arrive whatever the bound. Both ends call a message by the same
// id.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "wire/control_packet.h"
#include "wire/data_packet.h"
#include "wire/traffic_class.h"

namespace spillway::transport {

using wire::Outcome;

inline constexpr base::Instant kNever{base::Duration(INT64_MAX)};

struct LossPolicy {
  std::uint32_t loss_bound_ppm = 10'000;  // packets that may stay missing, per million; 0: none
  std::uint8_t min_planes = 1;            // of a trimmed packet, for it to count

  // How many of `packets` may stay missing: rounded down, so the bound always holds.
  constexpr std::uint32_t allowed_missing(std::uint32_t packets) const {
    return static_cast<std::uint32_t>(std::uint64_t{packets} * loss_bound_ppm / 1'000'000);
  }
};

// Writes the packets of a message when their turn comes: on the endpoint's thread, or on another
// one while the endpoint's thread takes packets in. So it may only read.
class PayloadSource {
 public:
  virtual ~PayloadSource() = default;
  // Writes the packet that `stamp` names into `out`, with that stamp in its header and sealed with
  // `auth`. `out` has room for SPILLWAY_MAX_PACKET bytes. Returns the size, at most the message's
  // packet_bytes.
  virtual std::size_t write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                            base::MutableByteView out) = 0;
};

// Takes the packets of a message as they arrive.
class PayloadSink {
 public:
  virtual ~PayloadSink() = default;
  // Takes the part of an opened packet that can be trusted. Returns how many whole planes that is;
  // 0 if the packet contradicts its message and is of no use.
  virtual unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) = 0;
};

struct SendOptions {
  wire::MessageId id;  // its source is the sending rank
  std::uint16_t to = 0;
  std::uint32_t packets = 0;
  std::uint32_t packet_bytes = 0;  // UDP payload of the largest packet
  std::uint8_t priority = 0;
  std::uint8_t importance = SPILLWAY_IMPORTANCE_MARKED;
  // Per packet, where importance differs; copied.
  std::span<const std::uint8_t> packet_importance{};
  LossPolicy loss;
  PayloadSource* source = nullptr;  // may be null where packets carry only their size
};

struct ReceiveOptions {
  wire::MessageId id;  // its source is the sending rank
  std::uint32_t packets = 0;
  std::uint32_t packet_bytes = 0;
  std::uint8_t planes = 0;  // of a whole packet
  std::uint8_t priority = 0;
  LossPolicy loss;
  std::optional<base::Duration> deadline{};  // from the call to expect()
  PayloadSink* sink = nullptr;
};

// How a message ended at its receiver, packet by packet.
struct ReceiveReport {
  wire::MessageId id;
  Outcome outcome = Outcome::kEverything;
  std::uint32_t packets = 0;
  std::uint32_t delivered = 0;           // at least min_planes came
  std::uint32_t whole = 0;               // all planes came
  std::uint32_t important_expected = 0;  // as far as the sender's probes told
  std::uint32_t important_delivered = 0;
  std::uint32_t duplicates = 0;
  std::vector<std::uint8_t> planes;  // planes that arrived of each packet; 0 if it is missing

  std::uint32_t missing() const { return packets - delivered; }
  std::uint32_t trimmed() const { return delivered - whole; }
};

// How a message ended at its sender.
struct SendReport {
  wire::MessageId id;
  std::uint16_t to = 0;
  Outcome outcome = Outcome::kEverything;
  std::uint32_t packets = 0;
  std::uint32_t delivered = 0;    // as the receiver said; 0 if it has left and needs none
  std::uint32_t transmitted = 0;  // retransmissions included
};

}  // namespace spillway::transport
