// SPDX-License-Identifier: Apache-2.0
//
// An endpoint with bytes around it: datagrams in, datagrams out. Everything that arrives is opened
// and verified here, so the endpoint only ever sees packets that passed their checks; everything
// that leaves is written and sealed here.
//
// A datagram's header names the peer whose keys it has to pass; the peer is looked up once. The
// endpoint counts datagrams of unknown peers, other jobs and other epochs; those that fail a check
// are counted here, by fault. Neither kind changes any state. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "transport/endpoint.h"
#include "wire/key.h"
#include "wire/packet_auth.h"
#include "wire/sum_datagram.h"

namespace spillway::transport {

class DatagramPort {
 public:
  DatagramPort(const EndpointConfig& config, const SessionConfig& session);

  Endpoint& endpoint() { return endpoint_; }
  const Endpoint& endpoint() const { return endpoint_; }
  const SessionConfig& session() const { return session_; }
  // Null if the rank is no peer.
  const PeerSession* session_with(std::uint16_t rank) const;

  // Keys are made when a peer is added.
  base::Status add_peer(std::uint16_t rank, base::Instant now);
  // Moves to another epoch, which has no peers yet. All messages end here without an event; packets
  // of the old epoch are foreign from now on.
  void begin_epoch(const Epoch& epoch);

  // `marked`: the IP header said congestion experienced.
  void on_datagram(base::ByteView bytes, bool marked, base::Instant now);

  // A host reported that nobody listens on the port of rank `to`, and quoted the beginning of a
  // datagram (ICMP port unreachable). The report counts only if this port wrote that very datagram
  // a moment ago: only hosts on the path know its check, which is in the quote. Even then it is
  // only a reason to ask the peer (Endpoint::on_refused). Returns false if this port did not write
  // it; nothing changes then.
  bool on_refused(std::uint16_t to, base::ByteView quoted, base::Instant now);

  // Writes the next datagram into `out`, which has room for SPILLWAY_MAX_PACKET bytes. Returns its
  // size; 0: nothing to send now.
  std::size_t poll_datagram(base::Instant now, base::MutableByteView out, Route& route);
  // Writes a transmission that the endpoint's poll_transmit() handed out.
  std::size_t write(const Transmission& transmission, base::MutableByteView out) const;
  // Writes a data packet. May be called on another thread while datagrams are taken in, as long as
  // no peer is added and no epoch begins.
  std::size_t write_data(const Route& route, const wire::DataStamp& stamp, PayloadSource& source,
                         base::MutableByteView out) const;

  // Datagrams that were refused, by wire::PacketFault.
  const std::array<std::uint64_t, wire::kPacketFaults>& faults() const { return faults_; }

 private:
  wire::PacketFault on_data(base::ByteView bytes, bool marked, base::Instant now);
  wire::PacketFault on_control(base::ByteView bytes, base::Instant now);
  wire::PacketFault on_sum(base::ByteView bytes, bool marked, base::Instant now);
  // Protects sum packets; all ranks of the epoch share it. Made when it is first asked for; null
  // where it cannot be.
  const wire::SumAuth* sums() const;
  bool wrote_control(std::uint16_t to, base::ByteView quoted);
  bool wrote_data(std::uint16_t to, base::ByteView quoted, base::Instant now);

  Endpoint endpoint_;
  SessionConfig session_;
  mutable std::optional<wire::SumAuth> sums_;
  std::array<std::uint64_t, wire::kPacketFaults> faults_{};
  Transmission transmission_;
  wire::ControlPacket control_;
  std::array<std::uint64_t, SPILLWAY_SUM_WORDS> words_;
};

}  // namespace spillway::transport
