// SPDX-License-Identifier: Apache-2.0
//
// Bytes between ranks of one machine: what travels is where they lie, and the receiver copies them
// out of the sender's memory itself. One packet instead of many and one copy instead of four; the
// message ends, as always, when its receiver has everything, so the sender's memory stays until
// then. Everything else about messages is as between machines.
//
// Who can be read is the PeerMemory's to say, the same at both ends. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "collective/byte_payload.h"

namespace spillway::collective {

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

  std::size_t write(const transport::DataStamp& stamp, base::MutableByteView out) override {
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
    const bool is_there =
        place_[1] == bytes_ && memory_.read(packet.header.message.source, place_[0], bytes_, data_);
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
