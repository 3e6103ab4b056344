// SPDX-License-Identifier: Apache-2.0
//
// A tensor into packets, row by row: rotate, code, cut into planes, add headers and checks.
//
// Every packet stands alone: it can be cut behind its head, lost, repeated or reordered. The same
// arguments give the same bytes on every machine.
//
// One thread per Packetizer; it owns about 300 KiB of scratch and allocates only when made.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/kernels.h"
#include "codec/row_encoder.h"
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
  // Room for one more packet; commit() says how much of it was used.
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

  // Encodes one row of `tensor` and hands each of its packets on, not yet written: its header, and
  // its planes, which are valid during the call. `stamp` is what packets of the message have in
  // common; the message's first packet has its number, those behind it the following ones.
  template <typename Visit>
  void visit_row(std::span<const float> tensor, std::size_t row, const Job& job,
                 const wire::DataStamp& stamp, Visit&& visit);

  // Appends the packets of one row of `tensor`.
  void append_row(std::span<const float> tensor, std::size_t row, const Job& job,
                  const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                  PacketBuffer& packets);

  // All packets of `tensor`, whose length is the plan's.
  PacketBuffer packetize(std::span<const float> tensor, const Job& job,
                         const wire::DataStamp& stamp, const wire::PacketAuth& auth);

 private:
  // The header that the row's packets have in common.
  wire::DataHeader encode_row(std::span<const float> tensor, std::size_t row, const Job& job,
                              const wire::DataStamp& stamp);
  // The planes of one of its packets, for which it completes the header. `first` is the number of
  // the message's first packet.
  base::ByteView cut_packet(std::size_t row, std::size_t slot, std::uint64_t first,
                            wire::DataHeader& header);

  PacketPlan plan_;
  codec::RowEncoder encoder_;
  std::vector<std::uint8_t> planes_;  // of one packet
};

template <typename Visit>
void Packetizer::visit_row(std::span<const float> tensor, std::size_t row, const Job& job,
                           const wire::DataStamp& stamp, Visit&& visit) {
  wire::DataHeader header = encode_row(tensor, row, job, stamp);
  for (std::size_t slot = 0; slot < plan_.packets_in(row); ++slot) {
    const base::ByteView planes = cut_packet(row, slot, stamp.number, header);
    visit(header, planes);
  }
}

}  // namespace spillway::packetize
