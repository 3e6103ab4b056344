// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/plane_payload.h"

#include <algorithm>
#include <span>

#include "base/random.h"
#include "tools/bench/command_error.h"
#include "wire/data_packet.h"
#include "wire/frame_overhead.h"

namespace spillway::bench {
namespace {

// Long rows mean fewer short packets, which would end a GSO run.
constexpr packetize::Encoding kEncoding{.precision = 16, .row_log2 = 15};
constexpr std::uint64_t kPlanesKey = 0x5350494C4C574159ULL;

std::vector<PlaneSpan> spans_of(const packetize::PacketPlan& plan) {
  std::vector<PlaneSpan> spans(plan.packet_count());
  std::uint32_t offset = 0;
  for (std::size_t packet = 0; packet < spans.size(); ++packet) {
    const auto bytes = static_cast<std::uint32_t>(plan.place(packet).count / 8 * plan.planes());
    spans[packet] = {offset, bytes};
    offset += bytes;
  }
  return spans;
}

std::vector<std::uint8_t> random_planes(std::span<const PlaneSpan> spans) {
  std::vector<std::uint8_t> planes(spans.back().offset + spans.back().bytes);
  base::RandomSequence random(kPlanesKey);
  for (std::uint8_t& byte : planes) {
    byte = static_cast<std::uint8_t>(random.next_word());
  }
  return planes;
}

wire::DataHeader header_of(const packetize::PacketPlan& plan, std::size_t packet) {
  const packetize::PacketPlace place = plan.place(packet);
  wire::DataHeader header;
  header.row_log2 = static_cast<std::uint8_t>(plan.layout().row(place.row).log2_length);
  header.rotations = 1;
  header.planes = static_cast<std::uint8_t>(plan.planes());
  header.row = static_cast<std::uint16_t>(place.row);
  header.slot = static_cast<std::uint8_t>(place.slot);
  header.quanta = static_cast<std::uint16_t>(plan.quanta());
  header.head_bytes = static_cast<std::uint16_t>(plan.head_bytes(place.count));
  header.scale = 1.0F;
  return header;
}

}  // namespace

packetize::PacketPlan plan_of_size(std::uint64_t bytes, unsigned datagram_bytes,
                                   unsigned trim_bytes) {
  const packetize::PacketLimits limits{.mtu = datagram_bytes + spillway_datagram_overhead(0),
                                       .trim_bytes = trim_bytes};
  const std::size_t values = std::max<std::uint64_t>(bytes * 8 / kEncoding.precision, 1);
  return value_or_throw(packetize::PacketPlan::make(values, limits, kEncoding));
}

PlaneSource::PlaneSource(const packetize::PacketPlan& plan) : spans_(spans_of(plan)) {
  planes_ = random_planes(spans_);
  for (std::size_t packet = 0; packet < plan.packet_count(); ++packet) {
    headers_.push_back(header_of(plan, packet));
  }
}

std::size_t PlaneSource::write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                               base::MutableByteView out) {
  wire::DataHeader header = headers_[stamp.packet];
  const PlaneSpan& span = spans_[stamp.packet];
  header.stamp = stamp;
  return wire::write_data_packet(header, base::ByteView(planes_).subspan(span.offset, span.bytes),
                                 auth, out);
}

PlaneSink::PlaneSink(const packetize::PacketPlan& plan) : plan_(plan), spans_(spans_of(plan)) {
  planes_.resize(spans_.back().offset + spans_.back().bytes);
}

unsigned PlaneSink::take(const wire::OpenedPacket& packet, base::ByteView bytes) {
  const wire::DataHeader& header = packet.header;
  if (header.stamp.packet >= spans_.size() || header.planes != plan_.planes() ||
      header.plane_bytes() != spans_[header.stamp.packet].bytes) {
    return 0;
  }
  const PlaneSpan& span = spans_[header.stamp.packet];
  const base::MutableByteView room =
      base::MutableByteView(planes_).subspan(span.offset, span.bytes);
  const wire::TrustedPlanes trusted = wire::copy_trusted_planes(bytes, packet, room);
  return static_cast<unsigned>(trusted.bytes * header.planes / span.bytes);
}

bool PlaneSink::holds_what_was_sent() const {
  return planes_ == random_planes(spans_);
}

}  // namespace spillway::bench
