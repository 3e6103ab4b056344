// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant/coded_payload.h"

#include <algorithm>
#include <limits>

#include "codec/plane_code.h"
#include "packetize/importance.h"
#include "wire/data_packet.h"

namespace spillway::collective {

void CodedSource::encode(std::span<const float> values, const packetize::Job& job,
                         const wire::MessageId& message) {
  packetize::Packetizer packetizer(plan_);
  coded_ = packetize::KeptPlanes::make(plan_);
  const std::size_t stride = packetize::plane_stride(plan_);
  for (std::size_t row = 0; row < plan_.layout().row_count(); ++row) {
    packetizer.visit_row(values, row, job, {.message = message},
                         [this, stride](const wire::DataHeader& header, base::ByteView planes) {
                           const std::size_t packet = header.stamp.packet;
                           std::copy(planes.begin(), planes.end(),
                                     coded_.memory.get() + packet * stride);
                           coded_.bytes[packet] = static_cast<std::uint16_t>(planes.size());
                           coded_.rows[header.row] = {header.scale, header.rotations};
                         });
  }
}

wire::DataHeader CodedSource::header_of(std::size_t packet) const {
  return packetize::packet_header(plan_, packet, coded_.rows[plan_.place(packet).row]);
}

void CodedSource::rank_packets(std::uint32_t expendable_ppm) {
  std::vector<float> scales;
  for (const codec::RowHeader& row : coded_.rows) {
    scales.push_back(row.scale);
  }
  importance_ = packetize::importance_by_energy(plan_, scales, expendable_ppm);
}

std::size_t CodedSource::write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                               base::MutableByteView out) {
  wire::DataHeader header = header_of(stamp.packet);
  header.stamp = stamp;
  return wire::write_data_packet(header, coded_.planes_of(plan_, stamp.packet), auth, out);
}

void CodedSource::decode(std::span<float> values, const packetize::Job& job,
                         const wire::MessageId& message) const {
  decode_part(coded_.bytes, values, job, message);
}

void CodedSource::decode_part(std::span<const std::uint16_t> bytes, std::span<float> values,
                              const packetize::Job& job, const wire::MessageId& message) const {
  packetize::Depacketizer depacketizer(plan_, job, message, values);
  for (std::size_t packet = 0; packet < std::min(bytes.size(), coded_.bytes.size()); ++packet) {
    const std::size_t count = std::min(bytes[packet], coded_.bytes[packet]);
    if (count > 0) {
      depacketizer.add_planes(header_of(packet), coded_.planes_of(plan_, packet).first(count));
    }
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

// (1 + e) / s - 1 if a share s of the row came, with planes that leave an error of e.
double CodedSink::expected_error_of_row(std::size_t row) const {
  double arrived = 0.0;
  double error = 0.0;
  const auto count = [&](std::size_t coordinates, unsigned planes) {
    if (planes > 0 && coordinates > 0) {
      arrived += static_cast<double>(coordinates);
      error += static_cast<double>(coordinates) *
               codec::expected_nmse(planes, codec::Estimate::kUnbiased);
    }
  };
  const std::size_t first = plan_.first_packet(row);
  for (std::size_t packet = first; packet < first + plan_.packets_in(row); ++packet) {
    const std::size_t coordinates = plan_.place(packet).count;
    const std::size_t plane_bytes = coordinates / 8;
    const auto planes = static_cast<unsigned>(bytes_of(packet) / plane_bytes);
    const std::size_t further = bytes_of(packet) % plane_bytes * 8;  // with one plane more
    count(coordinates - further, planes);
    count(further, planes + 1);
  }
  if (arrived == 0.0) {
    return std::numeric_limits<double>::infinity();
  }
  const auto all = static_cast<double>(std::size_t{1} << plan_.layout().row(row).log2_length);
  return (1.0 + error / arrived) * all / arrived - 1.0;
}

}  // namespace spillway::collective
