// SPDX-License-Identifier: Apache-2.0
//
// Bytes travel as they are (codec "bytes"), for everything that has to arrive exactly. A packet
// carries a run of the message's bytes, as many as the network allows. The first says its message's
// signature and carries as many bytes less, so all packets but the last are equally long. A trimmed
// packet only shows that it was sent. A message ends only when all of it came, its first packet
// included: so no call completes with another call's bytes.
//
// Between ranks of one machine (LocalSource, LocalSink) a message only says where the bytes lie in
// the sender's segment (PeerMemory), and the receiver copies them out: one packet instead of
// many and two copies instead of four. The message ends, as always, when its receiver has
// everything, so the bytes stay staged until then.
//
// Sources and sinks work on the caller's memory, which outlives the message; nothing is copied in
// between. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/status.h"
#include "collective/operation.h"
#include "packetize/packet_plan.h"
#include "transport/message.h"

namespace spillway::collective {

// Memory that ranks of one machine share, as collectives see it. A rank copies bytes for a
// neighbour into a segment of its own (stage), and tells the neighbour where they are (MemoryPlace,
// in a packet). The neighbour copies them out (read). No rank writes to another's memory, or reads
// anything else of it.
//
// Both ends agree on which ranks are near, so both know that a message between them begins with a
// place. Only the sender knows whether there is one: there may be no room, or the neighbour may
// have been unable to take the segment. Then the place says so, and the bytes follow through the
// network.
//
// A place comes from a neighbour, so it is checked: one that lies outside the segment, or is not of
// the agreed length, is refused, and failure() names the neighbour from then on. One thread.

// Where a message's bytes lie in their sender's segment. Travels as it is.
struct MemoryPlace {
  static constexpr std::uint64_t kNotStaged = UINT64_MAX;  // they follow through the network

  std::uint64_t offset = kNotStaged;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(MemoryPlace) == 16);

struct MemoryFailure {
  std::uint16_t peer = 0;
  base::Status status;
};

class PeerMemory {
 public:
  // Limit of one message; longer ones use the network.
  static constexpr std::size_t kMaxBytes = std::size_t{16} << 20;

  virtual ~PeerMemory() = default;
  // True if messages to and from this rank begin with a place.
  virtual bool is_local_rank(std::uint16_t peer) const = 0;
  // True if the peer can read what is staged here.
  virtual bool is_read_by(std::uint16_t peer) const = 0;

  // Copies bytes to where neighbours can read them. Returns where that is, or nothing if there is
  // no room. They stay until release().
  virtual std::optional<std::uint64_t> stage(base::ByteView bytes) = 0;
  virtual void release(std::uint64_t offset) = 0;

  // Copies `to.size()` bytes from a place in a neighbour's segment. False if there is no such
  // place; failure() then says so, for good.
  virtual bool read(std::uint16_t peer, const MemoryPlace& place, base::MutableByteView to) = 0;
  virtual const std::optional<MemoryFailure>& failure() const = 0;
};

// How packets on one carrier carry bytes: the same for all messages of a communicator that take it.
struct ByteLayout {
  // Planes that a whole packet counts for; one that is not whole counts for one.
  static constexpr unsigned kPlanes = SPILLWAY_MAX_PLANES;
  static constexpr std::size_t kSignatureBytes =
      sizeof(spillway_bytes_header) - sizeof(spillway_packet_header);
  static constexpr transport::LossPolicy kNoLoss{.loss_bound_ppm = 0, .min_planes = kPlanes};

  // For packets that fit the MTU and, when cut, still show which message they belong to.
  static base::Result<ByteLayout> make(const packetize::PacketLimits& limits);
  static ByteLayout on_stream();

  std::uint32_t packets(std::size_t bytes) const {
    const std::size_t all = bytes == 0 ? 0 : kSignatureBytes + bytes;
    return static_cast<std::uint32_t>((all + bytes_per_packet - 1) / bytes_per_packet);
  }
  std::size_t max_message_bytes() const {
    return std::size_t{bytes_per_packet} * SPILLWAY_MAX_PACKETS - kSignatureBytes;
  }

  // Options for a message of so many bytes, all of which must arrive. The sender fills in `to`.
  transport::SendOptions send_options(const wire::MessageId& id, std::size_t bytes,
                                      std::uint8_t priority,
                                      transport::PayloadSource& source) const;
  transport::ReceiveOptions receive_options(const wire::MessageId& id, std::size_t bytes,
                                            std::uint8_t priority,
                                            transport::PayloadSink& sink) const;

  // UDP payload of all packets of a message.
  std::uint64_t wire_bytes(std::size_t bytes) const;

  // The bytes of a plain message that one packet carries.
  struct ByteRange {
    std::size_t first = 0;
    std::size_t length = 0;  // 0: the message has no such packet
  };
  ByteRange range_of(std::uint16_t packet, std::size_t bytes) const;

  std::uint32_t bytes_per_packet = 0;  // in all packets but the first and the last
  std::uint32_t packet_bytes = 0;      // UDP payload of a full packet
  transport::Carrier carrier = transport::Carrier::kDatagrams;
};

// The bytes of a message: values as they are, or their code (exact/coded_message.h).
enum class ByteForm : std::uint8_t { kPlain, kCode };

class ByteSource final : public transport::PayloadSource {
 public:
  // All of them outlive the source.
  ByteSource(const std::uint8_t* data, std::size_t bytes, const ByteLayout& layout,
             ByteForm form = ByteForm::kPlain)
      : data_(data), bytes_(bytes), layout_(&layout), form_(form) {}

  std::size_t write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                    base::MutableByteView out) override;

 private:
  const std::uint8_t* data_;
  std::size_t bytes_;
  const ByteLayout* layout_;
  ByteForm form_;
};

class ByteSink final : public transport::PayloadSink {
 public:
  ByteSink(std::uint8_t* data, std::size_t bytes, const ByteLayout& layout)
      : data_(data), bytes_(bytes), layout_(&layout) {}

  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override;

 private:
  std::uint8_t* data_;
  std::size_t bytes_;
  const ByteLayout* layout_;
};

// Two addends, one of which comes as a message, and where their sum goes.
struct Fold {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t average_over = 0;  // as reduce() takes it
  const std::uint8_t* own = nullptr;
  bool own_is_first = false;  // in the order of the sum
  std::uint8_t* target = nullptr;
};

// Adds the message's bytes up as they come, while a packet is still in a cache, and does not keep
// them. Each packet is added once, so the target may be the other addend's memory.
class FoldSink final : public transport::PayloadSink {
 public:
  FoldSink(const Fold& fold, std::size_t bytes, const ByteLayout& layout)
      : fold_(fold), bytes_(bytes), layout_(&layout) {}

  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override;

 private:
  Fold fold_;
  std::size_t bytes_;
  const ByteLayout* layout_;
};

// A message that carries only a MemoryPlace.
class LocalSource final : public transport::PayloadSource {
 public:
  LocalSource(const MemoryPlace& place, const ByteLayout& layout)
      : place_(place),
        written_(reinterpret_cast<const std::uint8_t*>(&place_), sizeof(place_), layout) {}
  LocalSource(const LocalSource&) = delete;
  LocalSource& operator=(const LocalSource&) = delete;

  std::size_t write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                    base::MutableByteView out) override {
    return written_.write(stamp, auth, out);
  }

  bool is_staged() const { return place_.offset != MemoryPlace::kNotStaged; }

 private:
  MemoryPlace place_;
  ByteSource written_;
};

class LocalSink final : public transport::PayloadSink {
 public:
  LocalSink(base::MutableByteView to, const ByteLayout& layout, PeerMemory& memory)
      : to_(to),
        memory_(memory),
        read_(reinterpret_cast<std::uint8_t*>(&place_), sizeof(place_), layout) {}
  LocalSink(const LocalSink&) = delete;
  LocalSink& operator=(const LocalSink&) = delete;

  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override {
    const unsigned planes = read_.take(packet, bytes);
    if (planes < ByteLayout::kPlanes || !is_staged()) {
      return planes;
    }
    return memory_.read(packet.header.stamp.message.source, place_, to_) ? planes : 0;
  }

  // Valid once the message has come. True: its bytes are in place; false: they are still to follow.
  bool is_staged() const { return place_.offset != MemoryPlace::kNotStaged; }

 private:
  base::MutableByteView to_;
  PeerMemory& memory_;
  MemoryPlace place_;
  ByteSink read_;
};

}  // namespace spillway::collective
