// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant/coded_payload.h"

#include "wire/data_packet.h"

namespace spillway::collective {

void CodedSource::encode(std::span<const float> values, const packetize::Job& job,
                         const wire::MessageId& message) {
  packetize::Packetizer packetizer(plan_, auth_);
  headers_.reserve(plan_.packet_count());
  offsets_.reserve(plan_.packet_count());
  planes_.reserve(plan_.wire_bytes());
  for (std::size_t row = 0; row < plan_.layout().row_count(); ++row) {
    packetizer.visit_row(values, row, {.job = job, .message = message},
                         [this](const wire::DataHeader& header, base::ByteView planes) {
                           headers_.push_back(header);
                           offsets_.push_back(planes_.size());
                           planes_.insert(planes_.end(), planes.begin(), planes.end());
                         });
  }
}

std::size_t CodedSource::write(const wire::DataStamp& stamp, base::MutableByteView out) {
  wire::DataHeader header = headers_[stamp.packet];
  header.stamp = stamp;
  return wire::write_data_packet(
      header, base::ByteView(planes_).subspan(offsets_[stamp.packet], header.plane_bytes()), auth_,
      out);
}

void CodedSource::decode(std::span<float> values, const packetize::Job& job,
                         const wire::MessageId& message) const {
  packetize::Depacketizer depacketizer(plan_, job, message, auth_, values);
  for (std::size_t packet = 0; packet < headers_.size(); ++packet) {
    const wire::DataHeader& header = headers_[packet];
    depacketizer.add_planes(
        header, base::ByteView(planes_).subspan(offsets_[packet], header.plane_bytes()));
  }
  depacketizer.finish();
}

unsigned take_packet(packetize::Depacketizer& depacketizer, const wire::OpenedPacket& packet,
                     base::ByteView bytes) {
  switch (depacketizer.add(packet, bytes)) {
    case packetize::PacketOutcome::kForeign:
    case packetize::PacketOutcome::kInconsistent:
    case packetize::PacketOutcome::kFault:
      return 0;
    default:
      return depacketizer.planes_of(packet.header.stamp.packet);
  }
}

unsigned CodedSink::take(const wire::OpenedPacket& packet, base::ByteView bytes) {
  const unsigned planes = take_packet(depacketizer_, packet, bytes);
  has_begun_ = has_begun_ || planes > 0;
  return planes;
}

}  // namespace spillway::collective
