// SPDX-License-Identifier: Apache-2.0
#include "collective/byte_payload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "transport/datagram_port.h"
#include "wire/data_packet.h"

namespace spillway::collective {
namespace {

constexpr std::size_t kQuantumBytes = SPILLWAY_QUANTUM / 8 * ByteLayout::kPlanes;
constexpr std::size_t kMostQuanta = 255;
constexpr transport::LossPolicy kNoLoss{.bound_ppm = 0, .min_planes = ByteLayout::kPlanes};
constexpr std::size_t kMostHeadBytes = 255 * 4;

std::size_t packet_size(std::size_t quanta, std::size_t head, std::size_t check) {
  const std::size_t bytes = quanta * kQuantumBytes;
  const std::size_t tail = bytes - std::min(bytes, head);
  const std::size_t segments = (tail + SPILLWAY_TAIL_SEGMENT - 1) / SPILLWAY_TAIL_SEGMENT;
  return sizeof(spillway_data_header) + check + bytes + segments * check;
}

std::uint8_t quanta_of(std::size_t bytes) {
  return static_cast<std::uint8_t>((bytes + kQuantumBytes - 1) / kQuantumBytes);
}

}  // namespace

base::Result<ByteLayout> ByteLayout::make(const packetize::Fabric& fabric, bool keyed) {
  const std::size_t check = keyed ? SPILLWAY_TAG_SIZE : SPILLWAY_CRC_SIZE;
  std::size_t head = kMostHeadBytes;
  if (fabric.trim_bytes != 0) {
    const std::size_t before =
        fabric.frame_overhead() + sizeof(spillway_data_header) + check + fabric.trim_slack_bytes;
    if (fabric.trim_bytes < before + 4) {
      return base::invalid_argument(fmt::format(
          "a trim size of {} bytes does not hold a packet's header; the smallest that works here "
          "is {}, or 0 for a fabric that does not trim",
          fabric.trim_bytes, before + 4));
    }
    head = std::min<std::size_t>((fabric.trim_bytes - before) / 4 * 4, kMostHeadBytes);
  }
  const std::size_t room =
      std::min<std::size_t>(fabric.mtu - fabric.datagram_overhead(), SPILLWAY_MAX_PACKET);
  std::size_t quanta = kMostQuanta;
  while (quanta > 1 && packet_size(quanta, head, check) > room) {
    --quanta;
  }
  head = std::min(head, kQuantumBytes * quanta);
  ByteLayout layout;
  layout.bytes_per_packet = static_cast<std::uint32_t>(quanta * kQuantumBytes);
  layout.head_bytes = static_cast<std::uint32_t>(head);
  layout.packet_bytes = static_cast<std::uint32_t>(packet_size(quanta, head, check));
  layout.check_bytes = static_cast<std::uint32_t>(check);
  return layout;
}

transport::SendSpec ByteLayout::send_spec(const wire::MessageId& id, std::size_t bytes,
                                          std::uint8_t priority,
                                          transport::PayloadSource& source) const {
  transport::SendSpec spec;
  spec.id = id;
  spec.packets = packets(bytes);
  spec.packet_bytes = packet_bytes;
  spec.priority = priority;
  spec.loss = kNoLoss;
  spec.source = &source;
  return spec;
}

transport::ReceiveSpec ByteLayout::receive_spec(const wire::MessageId& id, std::size_t bytes,
                                                std::uint8_t priority,
                                                transport::PayloadSink& sink) const {
  transport::ReceiveSpec spec;
  spec.id = id;
  spec.packets = packets(bytes);
  spec.packet_bytes = packet_bytes;
  spec.planes = kPlanes;
  spec.priority = priority;
  spec.loss = kNoLoss;
  spec.sink = &sink;
  return spec;
}

std::uint64_t ByteLayout::wire_bytes(std::size_t bytes) const {
  const std::size_t full = bytes / bytes_per_packet;
  const std::size_t rest = bytes % bytes_per_packet;
  const std::size_t last = rest == 0 ? 0 : packet_size(quanta_of(rest), head_bytes, check_bytes);
  return full * packet_bytes + last;
}

std::size_t ByteSource::write(const transport::DataStamp& stamp, base::MutableByteView out) {
  const std::size_t first = std::size_t{stamp.packet} * layout_->bytes_per_packet;
  const std::size_t length = std::min<std::size_t>(layout_->bytes_per_packet, bytes_ - first);
  wire::DataHeader header;
  header.job = job_->id;
  header.epoch = job_->epoch;
  header.keyed = auth_->is_keyed();
  header.codec = wire::Codec::kBytes;
  header.row_log2 = SPILLWAY_MAX_ROW_LOG2;
  header.planes = ByteLayout::kPlanes;
  header.quanta = quanta_of(length);
  const std::size_t padded = header.plane_bytes();
  header.head_bytes =
      static_cast<std::uint16_t>(std::min<std::size_t>(layout_->head_bytes, padded));
  transport::apply_stamp(stamp, header);
  if (padded == length) {
    return wire::write_data_packet(header, {data_ + first, length}, *auth_, out);
  }
  std::array<std::uint8_t, kMostQuanta * kQuantumBytes> last;
  std::memcpy(last.data(), data_ + first, length);
  std::memset(last.data() + length, 0, padded - length);
  return wire::write_data_packet(header, base::ByteView(last).first(padded), *auth_, out);
}

unsigned ByteSink::take(const wire::OpenedPacket& packet, base::ByteView bytes) {
  const wire::DataHeader& header = packet.header;
  const std::size_t first = std::size_t{header.packet} * layout_->bytes_per_packet;
  if (header.codec != wire::Codec::kBytes || first >= bytes_) {
    return 0;
  }
  const std::size_t length = std::min<std::size_t>(layout_->bytes_per_packet, bytes_ - first);
  if (header.planes != ByteLayout::kPlanes || header.quanta != quanta_of(length)) {
    return 0;
  }
  const std::size_t padded = header.plane_bytes();
  wire::TrustedPlanes trusted;
  if (padded == length) {
    trusted = wire::copy_trusted_planes(bytes, packet, *auth_, {data_ + first, length});
  } else {
    std::array<std::uint8_t, kMostQuanta * kQuantumBytes> last;
    trusted = wire::copy_trusted_planes(bytes, packet, *auth_, last);
    std::memcpy(data_ + first, last.data(), std::min(length, trusted.bytes));
  }
  // Anything but everything is of no use; it counts as a plane, so that it is not taken for wrong.
  return trusted.bytes == padded ? ByteLayout::kPlanes : 1;
}

}  // namespace spillway::collective
