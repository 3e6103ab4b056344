// SPDX-License-Identifier: Apache-2.0
//
// A UDP socket that sets DSCP and ECN of each datagram it sends. For each that arrives it tells the
// sender, DSCP, ECN and the kernel's arrival time. It handles one datagram per call: for requests
// and replies, not for data. Non-blocking; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "net/sockets.h"
#include "tools/doctor/probe_packet.h"

namespace spillway::doctor {

struct ProbeArrival {
  base::ByteView bytes;  // valid until the next receive()
  net::SocketAddress from;
  std::uint8_t tos = 0;
  std::int64_t wall_ns = 0;  // arrival, by the time of day
  bool stamped = false;      // wall_ns is the kernel's; else the time of reading
};

class ProbeSocket {
 public:
  static base::Result<ProbeSocket> open(const net::SocketAddress& bind_to);

  // Receives only from `peer` from now on, and notices errors on the path to it.
  base::Status connect(const net::SocketAddress& peer);
  // Also sends datagrams longer than a router allowed before.
  void ignore_known_path_mtu();

  // Returns 0, or the errno if the datagram was not sent. Without `to`, sends to the connected
  // peer.
  int send(base::ByteView bytes, std::uint8_t tos, const net::SocketAddress* to = nullptr);
  // Returns nothing if no datagram waits.
  std::optional<ProbeArrival> receive();
  // Returns true as soon as a datagram may wait.
  bool wait(base::Duration most) const;

  // Takes the pending error, which an ICMP message caused, as an errno; 0: none.
  int take_error();

  int fd() const { return socket_.fd(); }
  const net::SocketAddress& local() const { return socket_.local(); }
  std::uint64_t overflowed() const { return reader_.overflowed(); }

 private:
  explicit ProbeSocket(net::UdpSocket socket);

  void read_control(msghdr& header, ProbeArrival& arrival);

  net::UdpSocket socket_;
  std::vector<std::uint8_t> buffer_;
  net::ArrivalReader reader_;
};

// The prober's end: asks a listener one request at a time and waits for its reply. Ignores
// replies to other requests, of other sessions or from other addresses. One thread.

// The default TOS of requests: the code point of control packets.
std::uint8_t control_tos();

struct ProbeRequest {
  ProbeType type = ProbeType::kEcho;
  std::uint8_t tos = control_tos();
  std::uint8_t reply_tos = control_tos();
  std::size_t bytes = kProbeBytes;
};

struct ProbeReply {
  ProbePacket packet;
  std::uint8_t tos = 0;         // as the reply arrived
  std::int64_t arrived_ns = 0;  // time of day
  std::optional<ArrivalSummary> summary{};
};

class PeerLink {
 public:
  static base::Result<PeerLink> open(const net::SocketAddress& peer);

  // Returns nothing if no reply comes within the patience.
  std::optional<ProbeReply> ask(const ProbeRequest& request);
  // The same, up to `tries` times.
  std::optional<ProbeReply> ask_with_retries(const ProbeRequest& request, unsigned tries);

  void set_patience(base::Duration patience) { patience_ = patience; }

  const net::SocketAddress& peer() const { return peer_; }
  std::uint64_t session() const { return session_; }
  // The errno of the last failure to send a request, or the last ICMP error for one; 0: none.
  int last_error() const { return last_error_; }

 private:
  PeerLink(ProbeSocket socket, const net::SocketAddress& peer, std::uint64_t session);

  bool send(const ProbePacket& packet, std::size_t bytes);
  std::optional<ProbeReply> await(const ProbePacket& request);

  ProbeSocket socket_;
  net::SocketAddress peer_;
  std::uint64_t session_;
  std::uint32_t sequence_ = 0;
  base::Duration patience_ = base::milliseconds(250);
  int last_error_ = 0;
  std::vector<std::uint8_t> buffer_;
};

}  // namespace spillway::doctor
