// SPDX-License-Identifier: Apache-2.0
//
// Detects that nothing of a message arrives. A peer may live, and answer, while nothing gets
// through: the network drops datagrams of that size, a filter drops data, this host's own kernel
// refuses to send. Such a message would be retransmitted for ever; the endpoint names it instead.
//
// A message has stalled when at least kStallPackets datagrams of it were sent over kStallAfter, and
// none arrived although its peer was heard. Waiting is no stall: while nothing is sent because the
// receiver has not begun, is busy with others, or grants nothing, no time counts (kStallGap). Pure;
// one thread.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "wire/data_packet.h"

namespace spillway::transport {

inline constexpr base::Duration kStallAfter = base::seconds(5);
// The sender knows more, so it reports first.
inline constexpr base::Duration kReceiverStallAfter = base::seconds(6);
inline constexpr base::Duration kStallGap = base::seconds(1);
inline constexpr std::uint32_t kStallPackets = 32;
// UDP payload that every IPv4 path carries; a longer datagram may be too long for one.
inline constexpr std::uint32_t kCarriedEverywhere = 548;

enum class StallReason : std::uint8_t {
  kTooBig,       // long datagrams vanish, short ones come through
  kLost,         // data vanishes, whatever its size
  kBlockedHere,  // this host's kernel refuses to send it
};
enum class StallSide : std::uint8_t { kSending, kReceiving };

// An event. The message goes on unchanged until its owner ends it.
struct MessageStalled {
  wire::MessageId id;
  std::uint16_t peer = 0;  // at the other end
  StallSide side = StallSide::kSending;
  StallReason reason = StallReason::kLost;
  std::uint8_t path = 0;             // lost most; only from the sending side
  std::uint8_t paths = 0;            // tried
  std::uint32_t packets = 0;         // sent in vain
  std::uint32_t datagram_bytes = 0;  // UDP payload of the longest of them
  int error = 0;                     // kBlockedHere: the errno
};

// Watches one message.
class StallWatch {
 public:
  // `packets` of it were sent. `carried`: when a datagram like them was last known to have arrived.
  void on_sent(std::uint32_t packets, base::Instant now, base::Instant carried) {
    if (packets_ == 0 || carried >= since_ || now - latest_ > kStallGap) {
      since_ = now;
      packets_ = 0;
    }
    packets_ += packets;
    latest_ = now;
  }
  // A packet of it arrived, or its receiver has not begun.
  void restart() { packets_ = 0; }

  // True once: the caller then reports the stall.
  bool tells(base::Instant now, base::Instant carried, base::Duration patience) {
    if (has_told_ || packets_ < kStallPackets || carried >= since_ || now - since_ < patience ||
        now - latest_ > kStallGap) {
      return false;
    }
    has_told_ = true;
    return true;
  }

  base::Instant since() const { return since_; }
  std::uint32_t packets() const { return packets_; }

 private:
  base::Instant since_;   // when the first of them was sent
  base::Instant latest_;  // when the latest was sent
  std::uint32_t packets_ = 0;
  bool has_told_ = false;
};

constexpr StallReason reason_of(std::uint32_t packets, std::uint32_t packet_bytes) {
  // The only packet of a message may be shorter than its owner allowed for.
  return packets > 1 && packet_bytes > kCarriedEverywhere ? StallReason::kTooBig
                                                          : StallReason::kLost;
}

}  // namespace spillway::transport
