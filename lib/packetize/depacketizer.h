// SPDX-License-Identifier: Apache-2.0
//
// The receiver's side: packets back into a tensor, in any subset and order, whole, trimmed,
// duplicated or damaged. Loss is not an error; the DeliveryReport counts it.
//
// add() verifies a packet and decodes the trusted part straight into the tensor's memory, still
// rotated. finish() rotates the rows back, rescales for missing packets, and reports. With
// KeptPlanes nothing is decoded: planes are stored for another decoder.
//
// Memory is fixed at construction (three bytes per packet, eight per row, one packet, one padded
// row). Nothing a peer sends makes it grow, and no packet writes outside its own coordinates.
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
#include "codec/row_codec.h"
#include "packetize/packet_plan.h"
#include "wire/data_packet.h"

namespace spillway::packetize {

// The account of one message. Every expected packet is in exactly one of whole, trimmed and
// missing; every coordinate in exactly one entry of coordinates_by_planes.
struct DeliveryReport {
  // Packets of the message.
  std::size_t expected = 0;
  std::size_t whole = 0;
  std::size_t trimmed = 0;
  std::size_t missing = 0;

  // Packets handed in beyond those, or refused.
  std::size_t duplicates = 0;    // brought nothing new
  std::size_t improved = 0;      // replaced a shorter copy of the same packet
  std::size_t foreign = 0;       // belong to another job, epoch or message
  std::size_t inconsistent = 0;  // contradict the plan, or other packets of their row
  std::array<std::size_t, wire::kPacketFaults> faults{};
  std::size_t corrupt_tails = 0;  // accepted without a tail that failed its check

  // Coordinates of rotated rows, padding included, by the number of whole planes that arrived.
  std::array<std::size_t, codec::kMaxPlanes + 1> coordinates_by_planes{};
  std::size_t rows = 0;
  std::size_t lost_rows = 0;        // no packet arrived: decoded to zero
  std::size_t non_finite_rows = 0;  // held a NaN or an infinity: decoded to NaN

  std::size_t coordinates() const;
  // The share of coordinates without any plane, and of those with fewer planes than were sent.
  double lost_fraction() const;
  double trimmed_fraction(unsigned planes_sent) const;
  // Average number of whole planes per coordinate.
  double mean_planes() const;
};

// Result of add() for one packet.
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
  // `tensor` has the plan's length and must outlive the object. Its content is undefined until
  // finish().
  Depacketizer(const PacketPlan& plan, const Job& job, const wire::MessageId& message,
               std::span<float> tensor, codec::Estimate estimate = codec::Estimate::kUnbiased,
               const codec::Kernels& kernels = codec::best_kernels());

  // Stores planes as they arrive instead of decoding them. `kept` is made for the same plan and
  // must outlive the object. Finishing a row then only updates the report.
  Depacketizer(const PacketPlan& plan, const Job& job, const wire::MessageId& message,
               KeptPlanes& kept);

  // Adds a packet whose number is close to `near`, the number of the message's first packet.
  PacketOutcome add(base::ByteView packet, const wire::PacketAuth& auth, std::uint64_t near = 0);
  // Adds a packet that was already opened.
  PacketOutcome add(const wire::OpenedPacket& opened, base::ByteView packet);
  // Adds planes under a header that this process wrote itself; neither is checked.
  PacketOutcome add_planes(const wire::DataHeader& header, base::ByteView planes);

  // Whole planes that arrived for a packet.
  unsigned planes_of(std::size_t packet) const;
  // Bytes of planes that arrived for a packet.
  std::uint16_t bytes_of(std::size_t packet) const { return received_bytes_[packet]; }
  // True if any packet of the row arrived.
  bool has_row(std::size_t row) const { return rows_[row].seen; }

  // Completes one row of the tensor. Call it at most once per row, and do not add() to it
  // afterwards.
  void finish_row(std::size_t row);
  // Completes the remaining rows. Call it once.
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
  KeptPlanes* kept_ = nullptr;  // set: planes are stored there instead of decoded
  codec::Estimate estimate_;
  const codec::Kernels& kernels_;

  std::vector<RowState> rows_;
  std::vector<std::uint16_t> received_bytes_;  // bytes of planes, per packet
  std::vector<std::uint8_t> sent_planes_;      // per packet that arrived
  std::vector<float> padded_row_;              // the last row, if it is padded
  std::array<std::uint8_t, SPILLWAY_MAX_PACKET> planes_;
  DeliveryReport report_;
};

}  // namespace spillway::packetize
