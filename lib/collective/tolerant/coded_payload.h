// SPDX-License-Identifier: Apache-2.0
//
// Floats as bit planes in messages: the codec's side of tolerant operations. A source is encoded
// once and may then be sent to many ranks; a sink takes packets as they come and is decoded at the
// end.
//
// Encoding and decoding take their time and may run on any thread, but not at the same time as
// anything else on the same object. The limits of a plan were checked when it was made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "packetize/depacketizer.h"
#include "packetize/kept_planes.h"
#include "packetize/packetizer.h"
#include "transport/message.h"

namespace spillway::collective {

class CodedSource final : public transport::PayloadSource {
 public:
  explicit CodedSource(const packetize::PacketPlan& plan) : plan_(plan) {}

  // `values` have the plan's length. The message's id is part of the code: it seeds the rotation.
  void encode(std::span<const float> values, const packetize::Job& job,
              const wire::MessageId& message);
  // Takes over what was encoded elsewhere, all of it.
  void adopt(packetize::KeptPlanes coded) { coded_ = std::move(coded); }

  // Sets how little of each packet may be lost, by the energy of its row (packetize/importance.h).
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

class CodedSink final : public transport::PayloadSink {
 public:
  CodedSink(const packetize::PacketPlan& plan, const packetize::Job& job,
            const wire::MessageId& message)
      : plan_(plan),
        count_(plan.layout().tensor_length()),
        values_(std::make_unique_for_overwrite<float[]>(count_)),
        depacketizer_(plan, job, message, {values_.get(), count_}) {}
  // Keeps planes as they come, in `kept`, to be decoded elsewhere: there are no values().
  CodedSink(const packetize::PacketPlan& plan, const packetize::Job& job,
            const wire::MessageId& message, packetize::KeptPlanes kept)
      : plan_(plan),
        kept_(std::move(kept)),
        key_(packetize::rotation_key(job, message)),
        depacketizer_(plan, job, message, kept_) {}
  CodedSink(const CodedSink&) = delete;
  CodedSink& operator=(const CodedSink&) = delete;

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

}  // namespace spillway::collective
