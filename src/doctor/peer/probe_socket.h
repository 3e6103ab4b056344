// SPDX-License-Identifier: Apache-2.0
//
// A UDP socket that says with which DSCP and ECN each datagram leaves, and, of each that arrives,
// where from, with which DSCP and ECN, and when by the kernel's clock. One datagram a call: for
// questions and answers, not for data. Non-blocking; one thread.
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
  base::ByteView bytes;  // until the next one is received
  net::SocketAddress from;
  std::uint8_t tos = 0;
  std::int64_t wall_ns = 0;  // when it arrived, by the time of day
  bool stamped = false;      // the kernel said so; else it is when it was read
};

class ProbeSocket {
 public:
  static base::Result<ProbeSocket> open(const net::SocketAddress& bind_to);

  // From now on nothing comes but from `peer`, and errors on the path to it are noticed.
  base::Status connect(const net::SocketAddress& peer);
  // Datagrams longer than a router allowed before are tried all the same.
  void ignore_known_path_mtu();

  // 0, or the errno that kept it here. Without an address it goes to whom connect() named.
  int send(base::ByteView bytes, std::uint8_t tos, const net::SocketAddress* to = nullptr);
  // Nothing where none waits.
  std::optional<ProbeArrival> receive();
  // True once one may wait.
  bool wait(base::Duration most) const;

  // What an ICMP message said since it was last asked, as an errno; 0: nothing.
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
