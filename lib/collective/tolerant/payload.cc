// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant/payload.h"
#include "collective/halves.h"

#include <algorithm>
#include <limits>

#include "codec/plane_code.h"
#include "packetize/packetizer.h"
#include "wire/data_packet.h"

namespace spillway::collective {

void PlaneSource::encode(std::span<const float> values, const packetize::Job& job,
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

wire::DataHeader PlaneSource::header_of(std::size_t packet) const {
  return packetize::packet_header(plan_, packet, coded_.rows[plan_.place(packet).row]);
}

void PlaneSource::rank_packets(std::uint32_t expendable_ppm) {
  std::vector<float> scales;
  for (const codec::RowHeader& row : coded_.rows) {
    scales.push_back(row.scale);
  }
  importance_ = packetize::importance_by_energy(plan_, scales, expendable_ppm);
}

std::size_t PlaneSource::write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                               base::MutableByteView out) {
  wire::DataHeader header = header_of(stamp.packet);
  header.stamp = stamp;
  return wire::write_data_packet(header, coded_.planes_of(plan_, stamp.packet), auth, out);
}

void PlaneSource::decode(std::span<float> values, const packetize::Job& job,
                         const wire::MessageId& message) const {
  decode_part(coded_.bytes, values, job, message);
}

void PlaneSource::decode_part(std::span<const std::uint16_t> bytes, std::span<float> values,
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

unsigned PlaneSink::take(const wire::OpenedPacket& packet, base::ByteView bytes) {
  const unsigned planes = take_packet(depacketizer_, packet, bytes);
  has_begun_ = has_begun_ || planes > 0;
  return planes;
}

// (1 + e) / s - 1 if a share s of the row came, with planes that leave an error of e.
double PlaneSink::expected_error_of_row(std::size_t row) const {
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

bool has_receipts(const Operation& operation, const Group& group) {
  const Tolerance& tolerance = *operation.tolerance;
  // A server has no part of its own, so a row of which nothing came has no sum.
  const bool may_lack_rows = group.servers > 0 && tolerance.loss_bound_ppm > 0;
  return has_contributions(operation) &&
         (tolerance.least_contributors > 0.0 || tolerance.feedback_tensor != 0 || may_lack_rows);
}

bool Receipt::uses_nothing() const {
  return std::all_of(used.begin(), used.end(), [](std::uint16_t bytes) { return bytes == 0; });
}

std::vector<std::uint8_t> encode_receipt(const Receipt& receipt) {
  const ReceiptShape shape{receipt.absent.size(), receipt.used.size()};
  std::vector<std::uint8_t> bytes(shape.bytes());
  base::store_le(bytes.data(), receipt.contributors);
  for (std::size_t row = 0; row < shape.rows; ++row) {
    std::uint8_t& byte = bytes[2 + row / 8];
    byte = static_cast<std::uint8_t>(byte | (receipt.absent[row] ? 1U << (row % 8) : 0U));
  }
  std::uint8_t* to = bytes.data() + bytes.size() - 2 * shape.packets;
  for (const std::uint16_t used : receipt.used) {
    base::store_le(to, used);
    to += 2;
  }
  return bytes;
}

Receipt parse_receipt(base::ByteView bytes, const ReceiptShape& shape, std::uint16_t workers) {
  Receipt receipt;
  base::ByteReader reader(bytes);
  receipt.contributors = std::min(reader.read<std::uint16_t>(), workers);
  for (std::size_t row = 0; row < shape.rows; row += 8) {
    const auto bits = reader.read<std::uint8_t>();
    for (std::size_t bit = 0; bit < 8 && row + bit < shape.rows; ++bit) {
      receipt.absent.push_back((bits >> bit & 1) != 0);
    }
  }
  for (std::size_t packet = 0; packet < shape.packets; ++packet) {
    receipt.used.push_back(reader.read<std::uint16_t>());
  }
  return receipt;
}

}  // namespace spillway::collective
