// SPDX-License-Identifier: Apache-2.0
#include "packetize/packetizer.h"

#include "base/check.h"
#include "wire/data_packet.h"

namespace spillway::packetize {

PacketBuffer::PacketBuffer(std::size_t capacity, std::size_t stride)
    : stride_(stride), bytes_(capacity * stride) {
  sizes_.reserve(capacity);
}

base::ByteView PacketBuffer::operator[](std::size_t index) const {
  SPILLWAY_CHECK(index < sizes_.size());
  return {bytes_.data() + index * stride_, sizes_[index]};
}

base::MutableByteView PacketBuffer::next() {
  SPILLWAY_CHECK((sizes_.size() + 1) * stride_ <= bytes_.size());
  return {bytes_.data() + sizes_.size() * stride_, stride_};
}

void PacketBuffer::commit(std::size_t size) {
  SPILLWAY_CHECK(size <= stride_);
  sizes_.push_back(size);
}

Packetizer::Packetizer(const PacketPlan& plan, const codec::Kernels& kernels)
    : plan_(plan), encoder_(kernels), planes_(SPILLWAY_MAX_PACKET) {}

codec::RowHeader Packetizer::encode_row(std::span<const float> tensor, std::size_t row_index,
                                        const Job& job, const wire::MessageId& message) {
  SPILLWAY_CHECK(tensor.size() == plan_.layout().tensor_length());
  const codec::Row row = plan_.layout().row(row_index);
  const codec::RotationId rotation{rotation_key(job, message),
                                   static_cast<std::uint32_t>(row_index)};
  return encoder_.encode(tensor.subspan(row.offset, row.values), row.log2_length, rotation,
                         plan_.planes());
}

base::ByteView Packetizer::cut_packet(const wire::DataHeader& header) {
  encoder_.write_planes(header.first(), header.count(), plan_.planes(), planes_.data());
  return base::ByteView(planes_).first(header.plane_bytes());
}

void Packetizer::append_row(std::span<const float> tensor, std::size_t row, const Job& job,
                            const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                            PacketBuffer& packets) {
  visit_row(tensor, row, job, stamp, [&](const wire::DataHeader& header, base::ByteView planes) {
    packets.commit(wire::write_data_packet(header, planes, auth, packets.next()));
  });
}

PacketBuffer Packetizer::packetize(std::span<const float> tensor, const Job& job,
                                   const wire::DataStamp& stamp, const wire::PacketAuth& auth) {
  PacketBuffer packets(plan_.packet_count(), plan_.max_packet_size());
  for (std::size_t row = 0; row < plan_.layout().row_count(); ++row) {
    append_row(tensor, row, job, stamp, auth, packets);
  }
  return packets;
}

}  // namespace spillway::packetize
