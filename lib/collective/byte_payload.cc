// SPDX-License-Identifier: Apache-2.0
#include "collective/byte_payload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "collective/reduction.h"
#include "wire/data_packet.h"

namespace spillway::collective {
namespace {

constexpr std::size_t kQuantumBytes = SPILLWAY_QUANTUM / 8 * ByteLayout::kPlanes;
constexpr std::size_t kMaxQuanta = 255;
// A cut packet only tells which message it belongs to, and bytes under the first check are read
// once more before they are moved. So the head is short.
constexpr std::size_t kHeadBytes = 64;

std::size_t packet_size(std::size_t quanta, std::size_t head) {
  const std::size_t bytes = quanta * kQuantumBytes;
  return spillway_packed_size(static_cast<__u32>(bytes), static_cast<__u32>(std::min(bytes, head)),
                              SPILLWAY_PAYLOAD_BYTES);
}

std::uint8_t quanta_of(std::size_t bytes) {
  return static_cast<std::uint8_t>((bytes + kQuantumBytes - 1) / kQuantumBytes);
}

// A packet that is not whole is useless; it counts as one plane, so that it is not taken for wrong.
unsigned planes_of(bool is_whole) {
  return is_whole ? ByteLayout::kPlanes : 1;
}

}  // namespace

base::Result<ByteLayout> ByteLayout::make(const packetize::PacketLimits& limits) {
  std::size_t head = kHeadBytes;
  if (limits.trim_bytes != 0) {
    const std::size_t before = limits.frame_overhead() + sizeof(spillway_data_header) +
                               SPILLWAY_CHECK_SIZE + limits.trim_slack_bytes;
    if (limits.trim_bytes < before + 4) {
      return base::invalid_argument(fmt::format(
          "a trim size of {} bytes does not hold a packet's header; the smallest that works here "
          "is {}, or 0 for a network that does not trim",
          limits.trim_bytes, before + 4));
    }
    head = std::min<std::size_t>((limits.trim_bytes - before) / 4 * 4, kHeadBytes);
  }
  const std::size_t room =
      std::min<std::size_t>(limits.mtu - limits.datagram_overhead(), SPILLWAY_MAX_PACKET);
  std::size_t quanta = kMaxQuanta;
  while (quanta > 1 && packet_size(quanta, head) > room) {
    --quanta;
  }
  head = std::min(head, kQuantumBytes * quanta);
  ByteLayout layout;
  layout.bytes_per_packet = static_cast<std::uint32_t>(quanta * kQuantumBytes);
  layout.head_bytes = static_cast<std::uint32_t>(head);
  layout.packet_bytes = static_cast<std::uint32_t>(packet_size(quanta, head));
  return layout;
}

ByteLayout ByteLayout::on_stream() {
  ByteLayout layout = make(packetize::PacketLimits::on_stream()).value();
  layout.carrier = transport::Carrier::kStream;
  return layout;
}

transport::SendOptions ByteLayout::send_options(const wire::MessageId& id, std::size_t bytes,
                                                std::uint8_t priority,
                                                transport::PayloadSource& source) const {
  transport::SendOptions options;
  options.id = id;
  options.packets = packets(bytes);
  options.packet_bytes = packet_bytes;
  options.priority = priority;
  options.loss = kNoLoss;
  options.source = &source;
  options.carrier = carrier;
  return options;
}

transport::ReceiveOptions ByteLayout::receive_options(const wire::MessageId& id, std::size_t bytes,
                                                      std::uint8_t priority,
                                                      transport::PayloadSink& sink) const {
  transport::ReceiveOptions options;
  options.id = id;
  options.packets = packets(bytes);
  options.packet_bytes = packet_bytes;
  options.planes = kPlanes;
  options.priority = priority;
  options.loss = kNoLoss;
  options.sink = &sink;
  options.carrier = carrier;
  return options;
}

std::uint64_t ByteLayout::wire_bytes(std::size_t bytes) const {
  const std::size_t full = bytes / bytes_per_packet;
  const std::size_t rest = bytes % bytes_per_packet;
  const std::size_t last = rest == 0 ? 0 : packet_size(quanta_of(rest), head_bytes);
  return full * packet_bytes + last;
}

std::size_t ByteSource::write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                              base::MutableByteView out) {
  const std::size_t first = std::size_t{stamp.packet} * layout_->bytes_per_packet;
  const std::size_t length = std::min<std::size_t>(layout_->bytes_per_packet, bytes_ - first);
  wire::DataHeader header;
  header.codec = wire::Codec::kBytes;
  header.row_log2 = SPILLWAY_MAX_ROW_LOG2;
  header.planes = ByteLayout::kPlanes;
  header.quanta = quanta_of(length);
  header.row = form_ == ByteForm::kCode ? static_cast<std::uint16_t>(layout_->packets(bytes_)) : 0;
  const std::size_t padded = header.plane_bytes();
  header.head_bytes =
      static_cast<std::uint16_t>(std::min<std::size_t>(layout_->head_bytes, padded));
  header.stamp = stamp;
  if (padded == length) {
    return wire::write_data_packet(header, {data_ + first, length}, auth, out);
  }
  std::array<std::uint8_t, kMaxQuanta * kQuantumBytes> last;
  std::memcpy(last.data(), data_ + first, length);
  std::memset(last.data() + length, 0, padded - length);
  return wire::write_data_packet(header, base::ByteView(last).first(padded), auth, out);
}

ByteLayout::ByteRange ByteLayout::range_of(const wire::DataHeader& header,
                                           std::size_t bytes) const {
  const std::size_t first = std::size_t{header.stamp.packet} * bytes_per_packet;
  if (header.codec != wire::Codec::kBytes || header.planes != kPlanes || header.row != 0 ||
      first >= bytes) {
    return {};
  }
  const std::size_t length = std::min<std::size_t>(bytes_per_packet, bytes - first);
  return {first, header.quanta == quanta_of(length) ? length : 0};
}

unsigned ByteSink::take(const wire::OpenedPacket& packet, base::ByteView bytes) {
  const auto [first, length] = layout_->range_of(packet.header, bytes_);
  if (length == 0) {
    return 0;
  }
  const std::size_t padded = packet.header.plane_bytes();
  wire::TrustedPlanes trusted;
  if (padded == length) {
    trusted = wire::copy_trusted_planes(bytes, packet, {data_ + first, length});
  } else {
    std::array<std::uint8_t, kMaxQuanta * kQuantumBytes> last;
    trusted = wire::copy_trusted_planes(bytes, packet, last);
    std::memcpy(data_ + first, last.data(), std::min(length, trusted.bytes));
  }
  return planes_of(trusted.bytes == padded);
}

unsigned FoldSink::take(const wire::OpenedPacket& packet, base::ByteView bytes) {
  const auto [first, length] = layout_->range_of(packet.header, bytes_);
  if (length == 0) {
    return 0;
  }
  std::array<std::uint8_t, kMaxQuanta * kQuantumBytes> decrypted;
  const base::ByteView came = wire::trusted_bytes(bytes, packet, decrypted);
  if (came.size() != packet.header.plane_bytes()) {
    return planes_of(false);
  }
  std::array<const std::uint8_t*, 2> addends = {came.data(), fold_.own + first};
  if (fold_.own_is_first) {
    std::swap(addends[0], addends[1]);
  }
  reduce(fold_.type, fold_.op, addends, length / element_size(fold_.type), fold_.target + first,
         fold_.average_over);
  return planes_of(true);
}

}  // namespace spillway::collective
