// SPDX-License-Identifier: Apache-2.0
//
// Bytes as they are in packets (codec "bytes"): for everything that has to arrive exactly. A packet
// carries a run of the message's bytes, as many as the fabric allows; only the last is shorter,
// padded with zeros to a multiple of 128. A trimmed one is of no use but to tell that it was sent.
//
// Source and sink work on the caller's memory, which outlives the message; nothing is copied in
// between. One thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "packetize/message.h"
#include "packetize/packet_plan.h"
#include "transport/message.h"

namespace spillway::collective {

// How a fabric's packets carry bytes: the same for all messages of a communicator.
struct ByteLayout {
  static constexpr unsigned kPlanes = SPILLWAY_MAX_PLANES;  // of a whole packet

  // For packets that fit the fabric's MTU and, cut, still show whose they are.
  static base::Result<ByteLayout> make(const packetize::Fabric& fabric, bool keyed);

  std::uint32_t packets(std::size_t bytes) const {
    return static_cast<std::uint32_t>((bytes + bytes_per_packet - 1) / bytes_per_packet);
  }

  // A message of so many bytes, all of which must arrive. The sender fills in where to.
  transport::SendSpec send_spec(const wire::MessageId& id, std::size_t bytes, std::uint8_t priority,
                                transport::PayloadSource& source) const;
  transport::ReceiveSpec receive_spec(const wire::MessageId& id, std::size_t bytes,
                                      std::uint8_t priority, transport::PayloadSink& sink) const;

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

  std::size_t write(const transport::DataStamp& stamp, base::MutableByteView out) override;

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

}  // namespace spillway::collective
