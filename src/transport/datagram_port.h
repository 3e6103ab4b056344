// SPDX-License-Identifier: Apache-2.0
//
// An endpoint with bytes around it: datagrams in, datagrams out. Everything that arrives is opened
// and verified here, so the endpoint only ever sees packets that passed their checks; everything
// that leaves is written and sealed here.
//
// A packet that fails is counted by its fault and changes nothing. One thread.
#pragma once

#include <array>
#include <cstdint>

#include "transport/endpoint.h"
#include "wire/packet_auth.h"

namespace spillway::transport {

class DatagramPort {
 public:
  // `auth` must outlive the port.
  DatagramPort(const EndpointConfig& config, const wire::PacketAuth& auth);

  Endpoint& endpoint() { return endpoint_; }
  const Endpoint& endpoint() const { return endpoint_; }

  // `marked`: the IP header said congestion experienced.
  void on_datagram(base::ByteView bytes, bool marked, base::Instant now);

  // Writes the next datagram into `out`, which has room for SPILLWAY_MAX_PACKET bytes. Returns its
  // size; 0: nothing to send now.
  std::size_t poll_datagram(base::Instant now, base::MutableByteView out, Route& route);

  // Datagrams that were refused, by wire::PacketFault.
  const std::array<std::uint64_t, wire::kPacketFaults>& faults() const { return faults_; }

 private:
  void on_data(base::ByteView bytes, bool marked, base::Instant now);
  void on_control(base::ByteView bytes, base::Instant now);

  Endpoint endpoint_;
  const wire::PacketAuth& auth_;
  std::array<std::uint64_t, wire::kPacketFaults> faults_{};
  Transmission transmission_;
  wire::ControlPacket control_;
};

}  // namespace spillway::transport
