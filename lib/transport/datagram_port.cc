// SPDX-License-Identifier: Apache-2.0
#include "transport/datagram_port.h"

#include <algorithm>

#include "base/check.h"
#include "transport/path_set.h"
#include "wire/widen.h"

namespace spillway::transport {

using wire::PacketFault;

DatagramPort::DatagramPort(const EndpointConfig& config, const SessionConfig& session)
    : endpoint_(config), session_(session, config.rank, config.epoch, config.first_number) {}

base::Status DatagramPort::add_peer(std::uint16_t rank, base::Instant now) {
  // Keys come first: packets of a peer that the endpoint knows must find them.
  if (base::Status status = session_.add_peer(rank); !status.ok()) {
    return status;
  }
  return endpoint_.add_peer(rank, now);
}

void DatagramPort::begin_epoch(const Epoch& epoch) {
  endpoint_.begin_epoch(epoch);
  const EndpointConfig& config = endpoint_.config();
  session_ = Session(epoch.session, config.rank, epoch.number, config.first_number);
}

void DatagramPort::on_datagram(base::ByteView bytes, bool marked, base::Instant now) {
  const unsigned type = bytes.empty() ? 0 : spillway_type_of(bytes[0]);
  const PacketFault fault = type == SPILLWAY_TYPE_DATA  ? on_data(bytes, marked, now)
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
  if (!endpoint_.admits({stamp.job, stamp.epoch, stamp.message.source, stamp.destination})) {
    return PacketFault::kNone;  // counted by the endpoint
  }
  Session::Link& link = *session_.find(stamp.message.source);
  stamp.number = wire::widen(static_cast<std::uint32_t>(stamp.number), link.newest_on(stamp.path));
  if (const PacketFault fault = wire::verify_head(bytes, *link.in, opened);
      fault != PacketFault::kNone) {
    return fault;
  }
  if (stamp.path < PathSet::kMaxPaths) {
    link.on_data(stamp.path, stamp.number);
  }
  endpoint_.complete(stamp.epoch, stamp.message, stamp.message.source);
  const auto size = static_cast<std::uint32_t>(opened.header.packet_size());
  endpoint_.on_data({.stamp = stamp,
                     .sent_bytes = size,
                     .marked = marked,
                     .trimmed = bytes.size() < size,
                     .packet = &opened,
                     .bytes = bytes},
                    now);
  return PacketFault::kNone;
}

PacketFault DatagramPort::on_control(base::ByteView bytes, base::Instant now) {
  if (const PacketFault fault = wire::read_control_header(bytes, control_);
      fault != PacketFault::kNone) {
    return fault;
  }
  if (!endpoint_.admits({control_.job, control_.epoch, control_.source, control_.destination})) {
    return PacketFault::kNone;
  }
  Session::Link& link = *session_.find(control_.source);
  control_.sequence =
      wire::widen(static_cast<std::uint32_t>(control_.sequence), link.newest_control);
  if (const PacketFault fault = wire::verify_control_packet(bytes, *link.in, control_);
      fault != PacketFault::kNone) {
    return fault;
  }
  link.newest_control = std::max(link.newest_control, control_.sequence);
  endpoint_.complete(control_.epoch, control_.message, control_.source);
  endpoint_.on_control(control_, now);
  return PacketFault::kNone;
}

PacketFault DatagramPort::on_sum(base::ByteView bytes, bool marked, base::Instant now) {
  wire::SumPacket packet;
  if (const PacketFault fault = wire::read_sum_header(bytes, packet); fault != PacketFault::kNone) {
    return fault;
  }
  if (!endpoint_.admits({packet.job, packet.epoch, packet.source, packet.destination})) {
    return PacketFault::kNone;
  }
  wire::MessageId name{.operation = packet.chunk.operation};
  endpoint_.complete(packet.epoch, name, packet.source);
  packet.chunk.operation = name.operation;
  if (wire::is_cut(bytes, packet)) {
    endpoint_.on_cut_sum(packet, now);
    return PacketFault::kNone;
  }
  const wire::SumAuth* auth = session_.sums();
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
  const wire::PacketAuth& auth = *session_.find(transmission.route.peer)->out;
  switch (transmission.kind) {
    case TransmissionKind::kControl:
      return wire::write_control_packet(transmission.control, auth, out);
    case TransmissionKind::kSum:
      return wire::write_sum_packet(transmission.sum, *session_.sums(), out);
    case TransmissionKind::kData:
      break;
  }
  SPILLWAY_CHECK(transmission.source != nullptr);
  return write_data(transmission.route, transmission.data, *transmission.source, out);
}

std::size_t DatagramPort::write_data(const Route& route, const wire::DataStamp& stamp,
                                     PayloadSource& source, base::MutableByteView out) const {
  return source.write(stamp, *session_.find(route.peer)->out, out);
}

}  // namespace spillway::transport
