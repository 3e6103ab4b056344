// SPDX-License-Identifier: Apache-2.0
//
// Bytes as they are in packets (codec "bytes"): for everything that has to arrive exactly. A packet
// carries a run of the message's bytes, as many as the network allows; only the last is shorter,
// padded with zeros to a multiple of 128. A trimmed one is of no use but to tell that it was sent.
//
// Between ranks of one machine (LocalSource, LocalSink) what travels is where the bytes lie, and
// the receiver copies them out of the sender's memory itself: one packet instead of many and one
// copy instead of four. The message ends, as always, when its receiver has everything, so the
// sender's memory stays until then. Who can be read is the PeerMemory's to say, the same at both
// ends.
//
// Sources and sinks work on the caller's memory, which outlives the message; nothing is copied in
// between. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "packetize/packet_plan.h"
#include "transport/message.h"

namespace spillway::collective {

// How packets carry bytes: the same for all messages of a communicator.
struct ByteLayout {
  static constexpr unsigned kPlanes = SPILLWAY_MAX_PLANES;  // of a whole packet
  static constexpr transport::LossPolicy kNoLoss{.loss_bound_ppm = 0, .min_planes = kPlanes};

  // For packets that fit the MTU and, cut, still show whose they are.
  static base::Result<ByteLayout> make(const packetize::PacketLimits& limits, bool keyed);

  std::uint32_t packets(std::size_t bytes) const {
    return static_cast<std::uint32_t>((bytes + bytes_per_packet - 1) / bytes_per_packet);
  }

  // A message of so many bytes, all of which must arrive. The sender fills in where to.
  transport::SendOptions send_options(const wire::MessageId& id, std::size_t bytes,
                                      std::uint8_t priority,
                                      transport::PayloadSource& source) const;
  transport::ReceiveOptions receive_options(const wire::MessageId& id, std::size_t bytes,
                                            std::uint8_t priority,
                                            transport::PayloadSink& sink) const;

  // UDP payload of all packets of a message.
  std::uint64_t wire_bytes(std::size_t bytes) const;

  std::uint32_t bytes_per_packet = 0;
  std::uint32_t head_bytes = 0;
  std::uint32_t packet_bytes = 0;  // of UDP payload, of a full packet
  std::uint32_t check_bytes = 0;
};

class ByteSource final : public transport::PayloadSource {
 public:
  // All of them outlive the source.
  ByteSource(const std::uint8_t* data, std::size_t bytes, const ByteLayout& layout,
             const packetize::Job& job, const wire::PacketAuth& auth)
      : data_(data), bytes_(bytes), layout_(&layout), job_(&job), auth_(&auth) {}

  std::size_t write(const wire::DataStamp& stamp, base::MutableByteView out) override;

 private:
  const std::uint8_t* data_;
  std::size_t bytes_;
  const ByteLayout* layout_;
  const packetize::Job* job_;
  const wire::PacketAuth* auth_;
};

class ByteSink final : public transport::PayloadSink {
 public:
  ByteSink(std::uint8_t* data, std::size_t bytes, const ByteLayout& layout,
           const wire::PacketAuth& auth)
      : data_(data), bytes_(bytes), layout_(&layout), auth_(&auth) {}

  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override;

 private:
  std::uint8_t* data_;
  std::size_t bytes_;
  const ByteLayout* layout_;
  const wire::PacketAuth* auth_;
};

struct MemoryFailure {
  std::uint16_t peer = 0;
  base::Status status;
};

class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  virtual bool reaches(std::uint16_t peer) const = 0;
  // False if it cannot be read; failure() then says why, for good.
  virtual bool read(std::uint16_t peer, std::uint64_t address, std::size_t bytes,
                    std::uint8_t* to) = 0;
  virtual const std::optional<MemoryFailure>& failure() const = 0;
};

// Where a message's bytes lie in their sender's memory.
using MemoryPlace = std::array<std::uint64_t, 2>;  // address, bytes

class LocalSource final : public transport::PayloadSource {
 public:
  LocalSource(const std::uint8_t* data, std::size_t bytes, const ByteLayout& layout,
              const packetize::Job& job, const wire::PacketAuth& auth)
      : place_{reinterpret_cast<std::uintptr_t>(data), bytes},
        written_(reinterpret_cast<const std::uint8_t*>(place_.data()), sizeof(place_), layout, job,
                 auth) {}
  LocalSource(const LocalSource&) = delete;
  LocalSource& operator=(const LocalSource&) = delete;

  std::size_t write(const wire::DataStamp& stamp, base::MutableByteView out) override {
    return written_.write(stamp, out);
  }

 private:
  MemoryPlace place_;
  ByteSource written_;
};

class LocalSink final : public transport::PayloadSink {
 public:
  LocalSink(std::uint8_t* data, std::size_t bytes, const ByteLayout& layout,
            const wire::PacketAuth& auth, PeerMemory& memory)
      : data_(data),
        bytes_(bytes),
        memory_(memory),
        read_(reinterpret_cast<std::uint8_t*>(place_.data()), sizeof(place_), layout, auth) {}
  LocalSink(const LocalSink&) = delete;
  LocalSink& operator=(const LocalSink&) = delete;

  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override {
    const unsigned planes = read_.take(packet, bytes);
    if (planes < ByteLayout::kPlanes) {
      return planes;
    }
    const bool is_there = place_[1] == bytes_ && memory_.read(packet.header.stamp.message.source,
                                                              place_[0], bytes_, data_);
    return is_there ? planes : 0;
  }

 private:
  std::uint8_t* data_;
  std::size_t bytes_;
  PeerMemory& memory_;
  MemoryPlace place_{};
  ByteSink read_;
};

}  // namespace spillway::collective
