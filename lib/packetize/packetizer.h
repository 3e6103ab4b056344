// SPDX-License-Identifier: Apache-2.0
//
// The sender's side: a tensor to packets, row by row (rotate, encode, split into planes, add
// headers and checks), and the choice of the packets that switches may drop first.
//
// Every packet is self-contained: it can be trimmed behind its head, lost, duplicated or reordered.
// The same arguments give the same bytes on every machine.
//
// One thread per Packetizer. It owns about 300 KiB of scratch memory and allocates only when
// constructed. importance_by_energy() is a pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/kernels.h"
#include "codec/row_codec.h"
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

// ------------------------------------------------------------------ importance
//
// Chooses the packets of a coded message that a congested switch may drop first, by the energy of
// their rows.
//
// If k of a row's n packets are lost, the others compensate for them at an error of k / (n - k)
// times its energy. The total error is least if the share that a row keeps follows the square root
// of its energy. So packets become expendable one at a time, each where it costs least. At most a
// third of a row's packets do, because with error feedback a row missing half of them does not
// count. If all rows are alike, each gets some; otherwise the rows with the least energy get most.
// Expendable packets have importance 0 to 3, the cheapest 0. Among the others, packets of rows with
// more than the mean energy are repaired first.
//
// Estimates stay unbiased although loss now depends on the values. Each row is rescaled by the
// share of it that arrived, and its rotation is independent of the losses. That needs at least
// one packet of every row. So a row with expendable packets and few others has one packet that must
// arrive. Very short rows, which a few losses could erase, all get the same importance.

// Rows with fewer packets have no expendable ones. If a row keeps fewer than these, one of its
// packets must arrive. The chance of losing this many packets that are not dropped first is
// negligible.
inline constexpr std::size_t kSafePackets = 3;

// Returns one importance per packet. `row_scales` holds the root mean square of each row, as in its
// header; a value that is not finite ranks above all others. `expendable_ppm` is the share of all
// packets to drop first, rounded down; fewer are marked if rows are short.
std::vector<std::uint8_t> importance_by_energy(const PacketPlan& plan,
                                               std::span<const float> row_scales,
                                               std::uint32_t expendable_ppm);

}  // namespace spillway::packetize
