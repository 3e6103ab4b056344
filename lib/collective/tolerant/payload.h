// SPDX-License-Identifier: Apache-2.0
//
// Floats as bit planes in messages: the codec's side of tolerant operations. A source is encoded
// once and may then be sent to many ranks; a sink takes packets as they come and is decoded at the
// end.
//
// Encoding and decoding take their time and may run on any thread, but not at the same time as
// anything else on the same object. The limits of a plan were checked when it was made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "collective/operation.h"
#include "packetize/depacketizer.h"
#include "packetize/packet_plan.h"
#include "packetize/packetizer.h"
#include "transport/message.h"

namespace spillway::collective {

class PlaneSource final : public transport::PayloadSource {
 public:
  explicit PlaneSource(const packetize::PacketPlan& plan) : plan_(plan) {}

  // `values` have the plan's length. The message's id is part of the code: it seeds the rotation.
  void encode(std::span<const float> values, const packetize::Job& job,
              const wire::MessageId& message);
  // Takes over what was encoded elsewhere, all of it.
  void adopt(packetize::KeptPlanes coded) { coded_ = std::move(coded); }

  // Sets how little of each packet may be lost, by the energy of its row (packetize/packetizer.h).
  void rank_packets(std::uint32_t expendable_ppm);

  std::size_t write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                    base::MutableByteView out) override;

  const packetize::PacketPlan& plan() const { return plan_; }
  const packetize::KeptPlanes& coded() const { return coded_; }
  // By packet; empty if packets were not ranked.
  std::span<const std::uint8_t> packet_importance() const { return importance_; }
  // Decodes what a receiver of everything would have.
  void decode(std::span<float> values, const packetize::Job& job,
              const wire::MessageId& message) const;
  // Decodes what a receiver of so many bytes of each packet's planes has. There must be as many.
  void decode_part(std::span<const std::uint16_t> bytes, std::span<float> values,
                   const packetize::Job& job, const wire::MessageId& message) const;

 private:
  wire::DataHeader header_of(std::size_t packet) const;

  packetize::PacketPlan plan_;
  packetize::KeptPlanes coded_;
  std::vector<std::uint8_t> importance_;
};

// Hands a packet to a depacketizer. Returns how many whole planes of it are there now; 0 if it was
// not taken, or if less than a plane came.
unsigned take_packet(packetize::Depacketizer& depacketizer, const wire::OpenedPacket& packet,
                     base::ByteView bytes);

class PlaneSink final : public transport::PayloadSink {
 public:
  PlaneSink(const packetize::PacketPlan& plan, const packetize::Job& job,
            const wire::MessageId& message)
      : plan_(plan),
        count_(plan.layout().tensor_length()),
        values_(std::make_unique_for_overwrite<float[]>(count_)),
        depacketizer_(plan, job, message, {values_.get(), count_}) {}
  // Keeps planes as they come, in `kept`, to be decoded elsewhere: there are no values().
  PlaneSink(const packetize::PacketPlan& plan, const packetize::Job& job,
            const wire::MessageId& message, packetize::KeptPlanes kept)
      : plan_(plan),
        kept_(std::move(kept)),
        key_(packetize::rotation_key(job, message)),
        depacketizer_(plan, job, message, kept_) {}
  PlaneSink(const PlaneSink&) = delete;
  PlaneSink& operator=(const PlaneSink&) = delete;

  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override;

  // Complete the values once the message has ended: all at once, or row by row just before a row is
  // used.
  packetize::DeliveryReport finish() { return depacketizer_.finish(); }
  void finish_row(std::size_t row) { depacketizer_.finish_row(row); }
  std::span<const float> values() const { return {values_.get(), count_}; }
  const packetize::KeptPlanes& kept() const { return kept_; }
  // Key of the rotations of what is kept.
  std::uint64_t key() const { return key_; }
  bool has_row(std::size_t row) const { return depacketizer_.has_row(row); }
  // Bytes of planes that came of a packet.
  std::uint16_t bytes_of(std::size_t packet) const { return depacketizer_.bytes_of(packet); }
  // Expected squared error of a row as it came, corrected for what is missing, over the row's
  // energy.
  double expected_error_of_row(std::size_t row) const;
  const packetize::PacketPlan& plan() const { return plan_; }
  bool has_begun() const { return has_begun_; }  // some packet of it came

 private:
  packetize::PacketPlan plan_;
  std::size_t count_ = 0;
  std::unique_ptr<float[]> values_;  // only what the depacketizer has written is read
  packetize::KeptPlanes kept_;
  std::uint64_t key_ = 0;
  packetize::Depacketizer depacketizer_;
  bool has_begun_ = false;
};

// A receipt comes from a piece's owner beside the sum. It tells a rank how many ranks are in the
// sum, and how much of the receiver's own contribution. Sent where ranks may be left out or keep
// what did not arrive; docs/algorithms.md says when, and at what cost.
//
//   0  contributors (2)     the fewest ranks in any row of the sum that has some
//   2  absent rows          a bit each, the first row's the lowest: no rank is in it, it is zero
//   .  used (2 per packet)  with error feedback: bytes of planes of each packet of the receiver's
//                           contribution that are in the sum; 0 for those of rows that do not count
//
// Both ends know a receipt's shape from its piece. Numbers are little-endian. Plain values and pure
// functions; received numbers are limited to their range.

// True if receipts are sent: if a rank may not be in a sum and only the owner knows, or a rank
// keeps what is not in it.
bool has_receipts(const Operation& operation, const Group& group);

struct ReceiptShape {
  std::size_t rows = 0;
  std::size_t packets = 0;  // of the contribution; 0 without error feedback

  std::size_t bytes() const { return 2 + (rows + 7) / 8 + 2 * packets; }
};

struct Receipt {
  std::uint16_t contributors = 0;
  std::vector<bool> absent;         // by row
  std::vector<std::uint16_t> used;  // by packet

  bool uses_nothing() const;
};

std::vector<std::uint8_t> encode_receipt(const Receipt& receipt);
// Reads a receipt of shape.bytes() bytes, from an owner in a group of so many workers.
Receipt parse_receipt(base::ByteView bytes, const ReceiptShape& shape, std::uint16_t workers);

}  // namespace spillway::collective
