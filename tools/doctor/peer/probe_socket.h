// SPDX-License-Identifier: Apache-2.0
//
// A UDP socket that sets DSCP and ECN of each datagram it sends. For each that arrives it tells the
// sender, DSCP, ECN and the kernel's arrival time. It handles one datagram per call: for questions
// and answers, not for data. Non-blocking; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "net/arrival_notes.h"
#include "net/udp_socket.h"

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

}  // namespace spillway::doctor
