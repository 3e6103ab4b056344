// SPDX-License-Identifier: Apache-2.0
#include "collective/byte_payload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "collective/reduction.h"
#include "wire/data_packet.h"

namespace spillway::collective {
namespace {

// Elements are whole in every packet: none is longer.
constexpr std::size_t kLongestElement = 8;
static_assert(ByteLayout::kSignatureBytes % kLongestElement == 0);

bool is_plain(const wire::DataHeader& header) {
  return header.codec == wire::Codec::kBytes && !header.is_code;
}

// A packet that is not whole is useless; it counts as one plane, so that it is not taken for wrong.
unsigned planes_of(bool is_whole) {
  return is_whole ? ByteLayout::kPlanes : 1;
}

}  // namespace

base::Result<ByteLayout> ByteLayout::make(const packetize::PacketLimits& limits) {
  // A trim must leave the header and the check of the first packet, whose header is the longest.
  const std::size_t kept = limits.frame_overhead() + spillway_bytes_header_size(0) +
                           SPILLWAY_CHECK_SIZE + limits.trim_slack_bytes;
  if (limits.trim_bytes != 0 && limits.trim_bytes < kept) {
    return base::invalid_argument(fmt::format(
        "a trim size of {} bytes does not hold a packet's header; the smallest that works here "
        "is {}, or 0 for a network that does not trim",
        limits.trim_bytes, kept));
  }
  const std::size_t room =
      std::min<std::size_t>(limits.mtu - limits.datagram_overhead(), SPILLWAY_MAX_PACKET);
  const std::size_t overhead = spillway_bytes_overhead(1);
  const std::size_t bytes = (room - overhead) / kLongestElement * kLongestElement;
  ByteLayout layout;
  layout.bytes_per_packet = static_cast<std::uint32_t>(bytes);
  layout.packet_bytes = static_cast<std::uint32_t>(overhead + bytes);
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
  return bytes == 0
             ? 0
             : std::uint64_t{packets(bytes)} * spillway_bytes_overhead(1) + kSignatureBytes + bytes;
}

std::size_t ByteSource::write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                              base::MutableByteView out) {
  const auto [first, length] = layout_->range_of(stamp.packet, bytes_);
  wire::DataHeader header;
  header.codec = wire::Codec::kBytes;
  header.byte_count = static_cast<std::uint16_t>(length);
  header.is_code = form_ == ByteForm::kCode;
  header.stamp = stamp;
  return wire::write_data_packet(header, {data_ + first, length}, auth, out);
}

ByteLayout::ByteRange ByteLayout::range_of(std::uint16_t packet, std::size_t bytes) const {
  const std::size_t first =
      packet == 0 ? 0 : std::size_t{packet} * bytes_per_packet - kSignatureBytes;
  const std::size_t room = packet == 0 ? bytes_per_packet - kSignatureBytes : bytes_per_packet;
  return {first, std::min(room, bytes - std::min(bytes, first))};
}

unsigned ByteSink::take(const wire::OpenedPacket& packet, base::ByteView bytes) {
  const auto [first, length] = layout_->range_of(packet.header.stamp.packet, bytes_);
  if (!is_plain(packet.header) || packet.header.byte_count > length) {
    return 0;
  }
  if (packet.header.byte_count < length) {
    // Cut, or from a shorter message.
    std::array<std::uint8_t, SPILLWAY_MAX_PACKET> shorter;
    return wire::trusted_bytes(bytes, packet, shorter).empty() ? planes_of(false) : 0;
  }
  return planes_of(wire::copy_trusted_planes(bytes, packet, {data_ + first, length}).bytes ==
                   length);
}

unsigned FoldSink::take(const wire::OpenedPacket& packet, base::ByteView bytes) {
  const auto [first, length] = layout_->range_of(packet.header.stamp.packet, bytes_);
  if (!is_plain(packet.header) || packet.header.byte_count > length) {
    return 0;
  }
  std::array<std::uint8_t, SPILLWAY_MAX_PACKET> decrypted;
  const base::ByteView came = wire::trusted_bytes(bytes, packet, decrypted);
  if (came.size() != length) {
    return came.empty() ? planes_of(false) : 0;
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
