// SPDX-License-Identifier: Apache-2.0
//
// A tensor to packets, row by row: rotate, encode, split into planes, add headers and checks.
//
// Every packet is self-contained: it can be trimmed behind its head, lost, repeated or reordered.
// The same arguments give the same bytes on every machine.
//
// One thread per Packetizer. It owns about 300 KiB of scratch memory and allocates only when
// constructed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/kernels.h"
#include "codec/row_encoder.h"
#include "packetize/kept_planes.h"
#include "packetize/packet_plan.h"
#include "wire/data_packet.h"
#include "wire/packet_auth.h"

namespace spillway::packetize {

// Packets in one buffer, `stride` bytes apart so that they can be written in place.
class PacketBuffer {
 public:
  PacketBuffer(std::size_t capacity, std::size_t stride);

  std::size_t size() const { return sizes_.size(); }
  base::ByteView operator[](std::size_t index) const;
  // Room for one more packet; commit() takes the number of bytes used.
  base::MutableByteView next();
  void commit(std::size_t size);
  void clear() { sizes_.clear(); }

 private:
  std::size_t stride_;
  std::vector<std::uint8_t> bytes_;
  std::vector<std::size_t> sizes_;
};

class Packetizer {
 public:
  explicit Packetizer(const PacketPlan& plan,
                      const codec::Kernels& kernels = codec::best_kernels());

  const PacketPlan& plan() const { return plan_; }

  // Encodes one row of `tensor` and calls `visit` for each packet with its header and planes. The
  // planes are valid only during that call. `stamp` holds the fields common to the message's
  // packets; its number is that of the first packet, and the others follow.
  template <typename Visit>
  void visit_row(std::span<const float> tensor, std::size_t row, const Job& job,
                 const wire::DataStamp& stamp, Visit&& visit);

  // Appends the packets of one row of `tensor`.
  void append_row(std::span<const float> tensor, std::size_t row, const Job& job,
                  const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                  PacketBuffer& packets);

  // All packets of `tensor`, which must have the plan's length.
  PacketBuffer packetize(std::span<const float> tensor, const Job& job,
                         const wire::DataStamp& stamp, const wire::PacketAuth& auth);

 private:
  codec::RowHeader encode_row(std::span<const float> tensor, std::size_t row, const Job& job,
                              const wire::MessageId& message);
  // The planes of one packet of the row that was encoded last.
  base::ByteView cut_packet(const wire::DataHeader& header);

  PacketPlan plan_;
  codec::RowEncoder encoder_;
  std::vector<std::uint8_t> planes_;  // of one packet
};

template <typename Visit>
void Packetizer::visit_row(std::span<const float> tensor, std::size_t row, const Job& job,
                           const wire::DataStamp& stamp, Visit&& visit) {
  const codec::RowHeader coded = encode_row(tensor, row, job, stamp.message);
  for (std::size_t slot = 0; slot < plan_.packets_in(row); ++slot) {
    const std::size_t packet = plan_.first_packet(row) + slot;
    wire::DataHeader header = packet_header(plan_, packet, coded);
    const bool last = header.stamp.last;
    header.stamp = stamp;
    header.stamp.job = job.id;
    header.stamp.epoch = job.epoch;
    header.stamp.packet = static_cast<std::uint16_t>(packet);
    header.stamp.number = stamp.number + packet;
    header.stamp.last = last;
    visit(header, cut_packet(header));
  }
}

}  // namespace spillway::packetize
