// SPDX-License-Identifier: Apache-2.0
#include "transport/datagram_port.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "transport/core.h"
#include "transport/path_set.h"
#include "transport/round_trip.h"
#include "wire/data_packet.h"

namespace spillway::transport {

using wire::PacketFault;

DatagramPort::DatagramPort(const EndpointConfig& config, const SessionConfig& session)
    : endpoint_(config), session_(session) {}

base::Status DatagramPort::add_peer(std::uint16_t rank, base::Instant now) {
  if (endpoint_.find_peer(rank) != nullptr) {
    return endpoint_.add_peer(rank, now);  // which refuses it
  }
  base::Result<std::unique_ptr<PeerSession>> session =
      PeerSession::make(session_, endpoint_.config(), rank);
  if (!session.ok()) {
    return session.status();
  }
  return endpoint_.add_peer(rank, now, std::move(session).value());
}

const PeerSession* DatagramPort::session_with(std::uint16_t rank) const {
  const Peer* peer = endpoint_.find_peer(rank);
  return peer == nullptr ? nullptr : peer->session.get();
}

void DatagramPort::begin_epoch(const Epoch& epoch) {
  endpoint_.begin_epoch(epoch);
  session_ = epoch.session;
  sums_.reset();
}

void DatagramPort::on_datagram(base::ByteView bytes, bool marked, base::Instant now) {
  const __u8 type = bytes.empty() ? 0 : spillway_type_of(bytes[0]);
  const PacketFault fault = spillway_is_data_type(type) ? on_data(bytes, marked, now)
                            : type == SPILLWAY_TYPE_SUM ? on_sum(bytes, marked, now)
                                                        : on_control(bytes, now);
  faults_[static_cast<std::size_t>(fault)] += fault == PacketFault::kNone ? 0 : 1;
}

PacketFault DatagramPort::on_data(base::ByteView bytes, bool marked, base::Instant now) {
  wire::OpenedPacket opened;
  if (const PacketFault fault = wire::read_data_header(bytes, opened.header);
      fault != PacketFault::kNone) {
    return fault;
  }
  wire::DataStamp& stamp = opened.header.stamp;
  Peer* peer = endpoint_.admit({stamp.job, stamp.epoch, stamp.message.source, stamp.destination});
  if (peer == nullptr) {
    return PacketFault::kNone;  // counted by the endpoint
  }
  PeerSession& session = *peer->session;
  stamp.number = wire::widen_counter(stamp.number, session.newest_on(stamp.path));
  if (const PacketFault fault = wire::verify_head(bytes, session.in, opened);
      fault != PacketFault::kNone) {
    return fault;
  }
  if (stamp.path <= kStreamPath) {
    session.on_data(stamp.path, stamp.number);
  }
  endpoint_.complete(stamp.epoch, stamp.message, *peer);
  const auto size = static_cast<std::uint32_t>(opened.header.packet_size());
  DataArrival arrival{.stamp = stamp,
                      .sent_bytes = size,
                      .marked = marked,
                      .trimmed = bytes.size() < size,
                      .packet = &opened,
                      .bytes = bytes};
  if (opened.header.codec == wire::Codec::kBytes) {
    endpoint_.complete(arrival, *peer);
  }
  endpoint_.on_data(arrival, *peer, now);
  return PacketFault::kNone;
}

PacketFault DatagramPort::on_control(base::ByteView bytes, base::Instant now) {
  if (const PacketFault fault = wire::read_control_header(bytes, control_);
      fault != PacketFault::kNone) {
    return fault;
  }
  Peer* peer =
      endpoint_.admit({control_.job, control_.epoch, control_.source, control_.destination});
  if (peer == nullptr) {
    return PacketFault::kNone;
  }
  PeerSession& session = *peer->session;
  control_.sequence = wire::widen_counter(control_.sequence, session.newest_control);
  if (const PacketFault fault = wire::verify_control_packet(bytes, session.in, control_);
      fault != PacketFault::kNone) {
    return fault;
  }
  session.newest_control = std::max(session.newest_control, control_.sequence);
  endpoint_.complete(control_.epoch, control_.message, *peer);
  endpoint_.on_control(control_, *peer, now);
  return PacketFault::kNone;
}

PacketFault DatagramPort::on_sum(base::ByteView bytes, bool marked, base::Instant now) {
  wire::SumPacket packet;
  if (const PacketFault fault = wire::read_sum_header(bytes, packet); fault != PacketFault::kNone) {
    return fault;
  }
  const Peer* peer = endpoint_.admit({packet.job, packet.epoch, packet.source, packet.destination});
  if (peer == nullptr) {
    return PacketFault::kNone;
  }
  wire::MessageId name{.operation = packet.chunk.operation};
  endpoint_.complete(packet.epoch, name, *peer);
  packet.chunk.operation = name.operation;
  if (wire::is_trimmed(bytes, packet)) {
    endpoint_.on_trimmed_sum(packet, now);
    return PacketFault::kNone;
  }
  const wire::SumAuth* auth = sums();
  const PacketFault fault = auth == nullptr ? PacketFault::kAuthMode
                                            : wire::verify_sum_packet(bytes, *auth, packet, words_);
  if (fault == PacketFault::kNone) {
    endpoint_.on_sum(packet, words_, marked, now);
  }
  return fault;
}

std::size_t DatagramPort::poll_datagram(base::Instant now, base::MutableByteView out,
                                        Route& route) {
  if (!endpoint_.poll_transmit(now, transmission_)) {
    return 0;
  }
  route = transmission_.route;
  return write(transmission_, out);
}

std::size_t DatagramPort::write(const Transmission& transmission, base::MutableByteView out) const {
  SPILLWAY_CHECK(out.size() >= SPILLWAY_MAX_PACKET || transmission.route.is_control);
  switch (transmission.kind) {
    case TransmissionKind::kControl:
      return wire::write_control_packet(transmission.control,
                                        session_with(transmission.route.peer)->out, out);
    case TransmissionKind::kSum:
      return wire::write_sum_packet(transmission.sum, *sums(), out);
    case TransmissionKind::kData:
      break;
  }
  SPILLWAY_CHECK(transmission.source != nullptr);
  return write_data(transmission.route, transmission.data, *transmission.source, out);
}

std::size_t DatagramPort::write_data(const Route& route, const wire::DataStamp& stamp,
                                     PayloadSource& source, base::MutableByteView out) const {
  return source.write(stamp, session_with(route.peer)->out, out);
}

const wire::SumAuth* DatagramPort::sums() const {
  if (!sums_) {
    base::Result<wire::SumAuth> made = wire::SumAuth::make(session_.key, endpoint_.config().epoch);
    if (!made.ok()) {
      return nullptr;
    }
    sums_ = std::move(made).value();
  }
  return &*sums_;
}

// Tells whether a quoted datagram is one of this port's own. Hosts quote some 500 bytes: most
// control packets whole, and the beginning of data packets. If several datagrams left in one
// buffer, the quote has the next ones behind the first; they are ignored.

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
  const bool is_data = spillway_is_data_type(spillway_type_of(quoted[0]));
  if (is_data ? !wrote_data(to, quoted, now) : !wrote_control(to, quoted)) {
    return false;
  }
  endpoint_.on_refused(to, now);
  return true;
}

bool DatagramPort::wrote_control(std::uint16_t to, base::ByteView quoted) {
  const std::size_t size = control_size(quoted);
  const PeerSession* session = session_with(to);
  if (session == nullptr || size == 0 || size > quoted.size() ||
      wire::read_control_header(quoted.first(size), control_) != wire::PacketFault::kNone) {
    return false;
  }
  const std::uint64_t latest = endpoint_.latest_control_to(to);
  control_.sequence = wire::widen_counter(control_.sequence, latest);
  return latest - control_.sequence < kLatest &&
         wire::verify_control_packet(quoted.first(size), session->out, control_) ==
             wire::PacketFault::kNone;
}

// A quote rarely reaches the end of what a data packet's check covers. So the packet is written
// once more and compared, its check included.
bool DatagramPort::wrote_data(std::uint16_t to, base::ByteView quoted, base::Instant now) {
  const Peer* peer = endpoint_.find_peer(to);
  wire::DataHeader header;
  if (peer == nullptr || wire::read_data_header(quoted, header) != wire::PacketFault::kNone ||
      quoted.size() < header.header_size() + SPILLWAY_CHECK_SIZE) {
    return false;
  }
  wire::DataStamp& stamp = header.stamp;
  const std::uint64_t latest = endpoint_.latest_data_to(to, stamp.path);
  stamp.number = wire::widen_counter(stamp.number, latest);
  if (stamp.message.source != endpoint_.config().rank || latest - stamp.number >= kLatestData ||
      since_stamp(now, stamp.timestamp_us) > kMoment) {
    return false;
  }
  endpoint_.complete(stamp.epoch, stamp.message, *peer);
  PayloadSource* source = endpoint_.source_of(to, stamp);
  if (source == nullptr) {
    return false;
  }
  std::array<std::uint8_t, SPILLWAY_MAX_PACKET> again;
  const std::size_t size = source->write(stamp, peer->session->out, again);
  return std::equal(again.begin(), again.begin() + std::min(size, quoted.size()), quoted.begin());
}

}  // namespace spillway::transport
