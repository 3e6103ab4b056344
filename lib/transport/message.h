// SPDX-License-Identifier: Apache-2.0
//
// The parameters of messages and sums, and the reports of how they ended.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "wire/control_packet.h"
#include "wire/data_packet.h"
#include "wire/packet.h"
#include "wire/sum_datagram.h"

namespace spillway::transport {

// ------------------------------------------------------------------ messages

// A message is one piece of an operation's data for one peer: a known number of packets that need
// no order. Its loss policy says how many of them may stay missing; a packet counts as delivered
// when at least `min_planes` of its planes arrived. Packets of importance
// SPILLWAY_IMPORTANCE_REQUIRED must arrive whatever the bound. Both ends call a message by the same
// id.

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
  // The number of the message's packets, once one of them told that it may_be_shorter; else 0.
  virtual std::uint32_t packets() const { return 0; }
};

// The carrier of a message's data packets; the same at both ends. Control packets take whatever
// reaches the peer. A stream (TCP) loses nothing, keeps the order and has a window of its own, so a
// message on it needs no credit, and arrives whole whatever its loss bound. Its packets wait for
// room in the stream alone.
enum class Carrier : std::uint8_t { kDatagrams, kStream };
inline constexpr unsigned kCarriers = 2;

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
  Carrier carrier = Carrier::kDatagrams;
};

struct ReceiveOptions {
  wire::MessageId id;  // its source is the sending rank
  std::uint32_t packets = 0;
  std::uint32_t packet_bytes = 0;
  // Only the sender knows the number of packets, which is `packets` at most. Its probes tell, and
  // its packets may (PayloadSink::packets()).
  bool may_be_shorter = false;
  std::uint8_t planes = 0;  // of a whole packet
  std::uint8_t priority = 0;
  LossPolicy loss;
  std::optional<base::Duration> deadline{};  // from the call to expect()
  PayloadSink* sink = nullptr;
  Carrier carrier = Carrier::kDatagrams;
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

// Detects that nothing of a message arrives. A peer may live, and answer, while nothing gets
// through: the network drops datagrams of that size, a filter drops data, this host's own kernel
// refuses to send. Such a message would be retransmitted for ever; the endpoint names it instead.
//
// A message has stalled when at least kStallPackets datagrams of it were sent over kStallAfter, and
// none arrived although its peer was heard. Waiting is no stall: while nothing is sent because the
// receiver has not begun, is busy with others, or grants nothing, no time counts (kStallGap). Pure;
// one thread.

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
  bool detects_stall(base::Instant now, base::Instant carried, base::Duration patience) {
    if (has_reported_ || packets_ < kStallPackets || carried >= since_ || now - since_ < patience ||
        now - latest_ > kStallGap) {
      return false;
    }
    has_reported_ = true;
    return true;
  }

  base::Instant since() const { return since_; }
  std::uint32_t packets() const { return packets_; }

 private:
  base::Instant since_;   // when the first of them was sent
  base::Instant latest_;  // when the latest was sent
  std::uint32_t packets_ = 0;
  bool has_reported_ = false;
};

constexpr StallReason reason_of(std::uint32_t packets, std::uint32_t packet_bytes) {
  // The only packet of a message may be shorter than its owner allowed for.
  return packets > 1 && packet_bytes > kCarriedEverywhere ? StallReason::kTooBig
                                                          : StallReason::kLost;
}

// ------------------------------------------------------------------ sums

// A sum is one piece of an operation's data that several ranks have parts of, in words that may be
// added on the way (wire/sum_packet.h). Parts go to its owner, and results come back from there.
// Each rank's words hold its part at first, and the sum in the end.

struct SumId {
  std::uint64_t operation = 0;
  std::uint64_t signature = 0;  // of its arguments: shows that ranks call different operations
  std::uint16_t piece = 0;
  std::uint16_t owner = 0;

  friend bool operator==(const SumId&, const SumId&) = default;
};

// Most chunks of one sum: chunk numbers have 16 bits, and the last one stands for all chunks.
inline constexpr std::uint32_t kMaxChunks = UINT16_MAX - 1;

struct SumOptions {
  SumId id;
  // Ranks whose parts the owner waits for, and ranks that get the result. Neither holds the owner.
  wire::RankSet contributors;
  wire::RankSet recipients;
  bool owner_contributes = true;                         // its words are part of the sum
  std::array<std::uint8_t, SPILLWAY_SUM_LEVELS> need{};  // see wire/sum_packet.h
  std::uint8_t priority = 0;
  std::uint8_t urgency = 0;  // how much it wants slots in switches
  // At the owner: how many parts may stay missing, per million parts of all chunks.
  std::uint32_t loss_bound_ppm = 0;
  // This rank's part, SPILLWAY_SUM_WORDS words per chunk, becomes the sum; and the ranks that are
  // in it, by chunk. Both belong to the caller and are used until the sum is over or withdrawn.
  std::span<std::uint64_t> words;
  std::span<wire::RankSet> ranks;

  std::uint32_t chunks() const { return static_cast<std::uint32_t>(ranks.size()); }
};

enum class SumStage : std::uint8_t {
  kFormed,  // at its owner: every chunk is the sum, but not every rank has it
  kOver,    // nothing more of it is sent or taken
};

struct SumReport {
  SumId id;
  SumStage stage = SumStage::kOver;
  std::uint32_t chunks = 0;
  std::uint32_t partial = 0;           // chunks that lack some rank's part
  std::vector<std::uint32_t> missing;  // chunks that lack its part, by rank
  std::uint64_t sent = 0;              // packets, retransmissions included
  std::uint64_t retransmitted = 0;
  // Only at the owner.
  std::uint64_t added = 0;    // parts that came in sums, formed by switches
  std::uint64_t alone = 0;    // parts that came by themselves
  std::uint64_t flushed = 0;  // chunks whose missing parts were asked for
};

}  // namespace spillway::transport
