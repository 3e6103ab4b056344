// SPDX-License-Identifier: Apache-2.0
//
// Tells whether a quoted datagram is one of this port's own. Hosts quote some 500 bytes: most
// control packets whole, and the beginning of data packets. If several datagrams left in one
// buffer, the quote has the next ones behind the first; they are ignored.
#include <algorithm>
#include <array>
#include <cstring>

#include "transport/datagram_port.h"
#include "transport/round_trip.h"
#include "wire/widen.h"

namespace spillway::transport {
namespace {

// How many packets count as sent a moment ago: control packets to a peer, and data packets of a
// path. The latter are as many as a window may hold, because hosts quote the first one they refuse.
constexpr std::uint64_t kLatest = 256;
constexpr std::uint64_t kLatestData = 4096;
constexpr base::Duration kMoment = base::seconds(1);

// Length of the control packet at the beginning of the quote, as its fields say; 0: none.
std::size_t control_size(base::ByteView quoted) {
  constexpr std::size_t kHeader = sizeof(spillway_control_header);
  const auto body = [&](auto& raw) {
    if (quoted.size() < kHeader + sizeof(raw)) {
      return false;
    }
    std::memcpy(&raw, quoted.data() + kHeader, sizeof(raw));
    return true;
  };
  wire::ControlPacket packet;
  const unsigned type = spillway_type_of(quoted[0]);
  if (type < SPILLWAY_TYPE_PROBE || type > SPILLWAY_TYPE_LEAVE) {
    return 0;
  }
  packet.type = static_cast<wire::ControlType>(type);
  if (packet.type == wire::ControlType::kBitmap) {
    spillway_bitmap_body raw;
    if (!body(raw) || raw.count > SPILLWAY_MAX_BITMAP_BYTES * 8) {
      return 0;
    }
    packet.bitmap.range.count = raw.count;
  } else if (packet.type == wire::ControlType::kCredit) {
    spillway_credit_body raw;
    if (!body(raw)) {
      return 0;
    }
    packet.credit.path_count = raw.path_count;
  }
  return packet.size();
}

}  // namespace

bool DatagramPort::on_refused(std::uint16_t to, base::ByteView quoted, base::Instant now) {
  if (quoted.empty()) {
    return false;
  }
  const bool is_data = spillway_type_of(quoted[0]) == SPILLWAY_TYPE_DATA;
  if (is_data ? !wrote_data(to, quoted, now) : !wrote_control(to, quoted)) {
    return false;
  }
  endpoint_.on_refused(to, now);
  return true;
}

bool DatagramPort::wrote_control(std::uint16_t to, base::ByteView quoted) {
  const std::size_t size = control_size(quoted);
  const Session::Link* link = session_.find(to);
  if (link == nullptr || size == 0 || size > quoted.size() ||
      wire::read_control_header(quoted.first(size), control_) != wire::PacketFault::kNone) {
    return false;
  }
  const std::uint64_t latest = endpoint_.latest_control_to(to);
  control_.sequence = wire::widen(static_cast<std::uint32_t>(control_.sequence), latest);
  return latest - control_.sequence < kLatest &&
         wire::verify_control_packet(quoted.first(size), *link->out, control_) ==
             wire::PacketFault::kNone;
}

// A quote rarely reaches the end of what a data packet's check covers. So the packet is written
// once more and compared, its check included.
bool DatagramPort::wrote_data(std::uint16_t to, base::ByteView quoted, base::Instant now) {
  const Session::Link* link = session_.find(to);
  wire::DataHeader header;
  if (link == nullptr || quoted.size() < sizeof(spillway_data_header) + SPILLWAY_CHECK_SIZE ||
      wire::read_data_header(quoted, header) != wire::PacketFault::kNone) {
    return false;
  }
  wire::DataStamp& stamp = header.stamp;
  const std::uint64_t latest = endpoint_.latest_data_to(to, stamp.path);
  stamp.number = wire::widen(static_cast<std::uint32_t>(stamp.number), latest);
  if (stamp.message.source != endpoint_.config().rank || latest - stamp.number >= kLatestData ||
      since_stamp(now, stamp.timestamp_us) > kMoment) {
    return false;
  }
  endpoint_.complete(stamp.epoch, stamp.message, to);
  PayloadSource* source = endpoint_.source_of(to, stamp);
  if (source == nullptr) {
    return false;
  }
  std::array<std::uint8_t, SPILLWAY_MAX_PACKET> again;
  const std::size_t size = source->write(stamp, *link->out, again);
  return std::equal(again.begin(), again.begin() + std::min(size, quoted.size()), quoted.begin());
}

}  // namespace spillway::transport
