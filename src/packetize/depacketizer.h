// SPDX-License-Identifier: Apache-2.0
//
// Packets back into a tensor: any subset, in any order, whole, cut, repeated or damaged; and the
// report of what came. Loss is data, and the DeliveryReport is that data.
//
// add() verifies a packet and decodes what can be trusted of it straight into the tensor's memory,
// still rotated; finish() rotates the rows back, makes up for what is missing, and reports. Where
// something else decodes, planes are kept instead. Memory
// is fixed when the object is made (two bytes per packet, eight per row, one padded row); nothing a
// peer sends makes it grow, and no packet writes outside its own coordinates.
//
// A longer copy of a packet replaces a shorter one. The first packet of a row fixes the row's scale
// and rotations; packets that disagree are refused and counted, never mixed.
//
// One thread per Depacketizer; any number per process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/kernels.h"
#include "codec/plane_code.h"
#include "codec/row.h"
#include "packetize/kept_planes.h"
#include "packetize/packet_plan.h"
#include "wire/data_packet.h"

namespace spillway::packetize {

// What came of one message. Every expected packet is in exactly one of whole, trimmed and missing;
// every coordinate in exactly one entry of coordinates_by_planes.
struct DeliveryReport {
  // Packets of the message.
  std::size_t expected = 0;
  std::size_t whole = 0;
  std::size_t trimmed = 0;
  std::size_t missing = 0;

  // Packets that were handed in beyond those, or not taken.
  std::size_t duplicates = 0;    // had nothing new
  std::size_t improved = 0;      // replaced a shorter copy of themselves
  std::size_t foreign = 0;       // of another job, epoch or message
  std::size_t inconsistent = 0;  // contradict the plan, or other packets of their row
  std::array<std::size_t, wire::kPacketFaults> faults{};
  std::size_t corrupt_tails = 0;  // taken, less a tail that failed its check

  // Coordinates of rotated rows, padding included, by how many whole planes of them came.
  std::array<std::size_t, codec::kMaxPlanes + 1> coordinates_by_planes{};
  std::size_t rows = 0;
  std::size_t lost_rows = 0;        // nothing came: decoded to zero
  std::size_t non_finite_rows = 0;  // held a NaN or an infinity: decoded to NaN

  std::size_t coordinates() const;
  // The share of coordinates of which nothing came, and of those that came short.
  double lost_fraction() const;
  double trimmed_fraction(unsigned planes_sent) const;
  // Whole planes per coordinate, on average.
  double mean_planes() const;
};

// What became of one packet handed to add().
enum class PacketOutcome : std::uint8_t {
  kWhole,
  kTrimmed,
  kImproved,
  kDuplicate,
  kForeign,
  kInconsistent,
  kFault,
};

class Depacketizer {
 public:
  // `tensor` (of the plan's length) must outlive the object; its content is not meaningful before
  // finish().
  Depacketizer(const PacketPlan& plan, const Job& job, const wire::MessageId& message,
               std::span<float> tensor, codec::Estimate estimate = codec::Estimate::kUnbiased,
               const codec::Kernels& kernels = codec::best_kernels());

  // The same without decoding: planes are kept as they come, in memory for the same plan, which
  // must outlive the object, and finishing a row only counts.
  Depacketizer(const PacketPlan& plan, const Job& job, const wire::MessageId& message,
               KeptPlanes& kept);

  // A packet whose number is near the message's first, `near`.
  PacketOutcome add(base::ByteView packet, const wire::PacketAuth& auth, std::uint64_t near = 0);
  // The same for a packet that was opened before.
  PacketOutcome add(const wire::OpenedPacket& opened, base::ByteView packet);
  // The same for planes that never were a packet: those of a header this process wrote itself.
  PacketOutcome add_planes(const wire::DataHeader& header, base::ByteView planes);

  // Whole planes that came of a packet.
  unsigned planes_of(std::size_t packet) const;
  // Bytes of planes that came of it.
  std::uint16_t bytes_of(std::size_t packet) const { return received_bytes_[packet]; }
  // Whether anything came of a row.
  bool has_row(std::size_t row) const { return rows_[row].seen; }

  // Completes one row of the tensor; each at most once, and add() no more afterwards.
  void finish_row(std::size_t row);
  // Completes the rows that are not. Call it once.
  DeliveryReport finish();

 private:
  struct RowState {
    float scale = 0.0F;
    std::uint8_t rotations = 0;
    bool seen = false;
    bool finished = false;
  };

  bool is_ours(const wire::DataHeader& header) const;
  bool fits_plan(const wire::DataHeader& header) const;
  bool agrees_with_row(const wire::DataHeader& header) const;
  PacketOutcome check(const wire::DataHeader& header);
  void keep(const wire::DataHeader& header, base::ByteView planes);
  float* row_data(std::size_t row);
  std::size_t estimated_coordinates(std::size_t packet) const;
  std::size_t tally_packet(std::size_t packet);

  PacketPlan plan_;
  Job job_;
  wire::MessageId message_;
  std::span<float> tensor_;
  KeptPlanes* kept_ = nullptr;  // instead of a tensor
  codec::Estimate estimate_;
  const codec::Kernels& kernels_;

  std::vector<RowState> rows_;
  std::vector<std::uint16_t> received_bytes_;  // of planes, per packet
  std::vector<std::uint8_t> sent_planes_;      // per packet that came
  std::vector<float> padded_row_;              // the last row, where it is longer than its values
  std::array<std::uint8_t, SPILLWAY_MAX_PACKET> planes_;
  DeliveryReport report_;
};

}  // namespace spillway::packetize
