// SPDX-License-Identifier: Apache-2.0
#include "fabric/relay_port.h"

#include <utility>

#include "wire/packet.h"

namespace spillway::fabric {

RelayPort::RelayPort(net::UdpSocket socket, const PortSpec& spec, sim::HostId host,
                     const RelayDirectory& directory)
    : Port(SPILLWAY_MAX_PACKET, SPILLWAY_MAX_PACKET, spec.deliver),
      socket_(std::move(socket)),
      host_(host),
      directory_(directory) {}

base::Result<std::unique_ptr<RelayPort>> RelayPort::open(const PortSpec& spec, sim::HostId host,
                                                         const RelayDirectory& directory) {
  base::Result<net::UdpSocket> socket = net::UdpSocket::open(spec.listen);
  if (!socket.ok()) {
    return socket.status();
  }
  socket.value().tell_about_arrivals(/*gro=*/false);
  socket.value().size_buffers(kSocketBufferBytes);
  return std::unique_ptr<RelayPort>(
      new RelayPort(std::move(socket).value(), spec, host, directory));
}

// A datagram longer than any Spillway packet was cut by the buffer: as Intake sees it, what is left
// may look like one.
void RelayPort::take(const Received& received, Intake& intake) {
  const net::SocketAddress from = net::SocketAddress::from(*received.from);
  const base::ByteView payload = received.is_cut ? base::ByteView() : received.bytes;
  intake.take_datagram({.from = directory_.source_of(from, payload),
                        .to = host_,
                        .tos = received.notes.tos,
                        .label = from.port(),
                        .payload = payload},
                       received.notes.at);
}

void RelayPort::write(const Departure& departure) {
  const auto tos = static_cast<std::uint8_t>((departure.dscp << 2) | departure.ecn);
  const base::MutableByteView datagram =
      out_.add(socket_.fd(), departure.bytes.size(), tos, departure.due);
  base::copy_bytes(departure.bytes.data(), departure.bytes.size(), datagram.data());
}

PortCounters RelayPort::counters() {
  return {.out = out_.counters(), .missed = in_.overflowed()};
}

}  // namespace spillway::fabric
