// SPDX-License-Identifier: Apache-2.0
#include "transport/datagram_port.h"

#include "base/check.h"

namespace spillway::transport {

DatagramPort::DatagramPort(const EndpointConfig& config, const wire::PacketAuth& auth)
    : endpoint_(config), auth_(auth) {}

void DatagramPort::on_datagram(base::ByteView bytes, bool marked, base::Instant now) {
  if (!bytes.empty() && spillway_type_of(bytes[0]) == SPILLWAY_TYPE_DATA) {
    on_data(bytes, marked, now);
  } else {
    on_control(bytes, now);
  }
}

void DatagramPort::on_data(base::ByteView bytes, bool marked, base::Instant now) {
  wire::OpenedPacket opened;
  const wire::PacketFault fault = wire::open_data_packet(bytes, auth_, opened);
  if (fault != wire::PacketFault::kNone) {
    ++faults_[static_cast<std::size_t>(fault)];
    return;
  }
  const wire::DataHeader& header = opened.header;
  const auto size = static_cast<std::uint32_t>(header.packet_size());
  DataArrival arrival;
  arrival.job = header.job;
  arrival.epoch = header.epoch;
  arrival.stamp = header.stamp;
  arrival.sent_bytes = size;
  arrival.marked = marked;
  arrival.trimmed = bytes.size() < size;
  arrival.packet = &opened;
  arrival.bytes = bytes;
  endpoint_.on_data(arrival, now);
}

void DatagramPort::on_control(base::ByteView bytes, base::Instant now) {
  const wire::PacketFault fault = wire::open_control_packet(bytes, auth_, control_);
  if (fault != wire::PacketFault::kNone) {
    ++faults_[static_cast<std::size_t>(fault)];
    return;
  }
  endpoint_.on_control(control_, now);
}

std::size_t DatagramPort::poll_datagram(base::Instant now, base::MutableByteView out,
                                        Route& route) {
  SPILLWAY_CHECK(out.size() >= SPILLWAY_MAX_PACKET);
  if (!endpoint_.poll_transmit(now, transmission_)) {
    return 0;
  }
  route = transmission_.route;
  if (route.is_control) {
    return wire::write_control_packet(transmission_.control, auth_, out);
  }
  SPILLWAY_CHECK(transmission_.source != nullptr);
  return transmission_.source->write(transmission_.data, out);
}

}  // namespace spillway::transport
