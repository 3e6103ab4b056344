// SPDX-License-Identifier: Apache-2.0
//
// A non-blocking UDP socket and what the kernel can do for it. Packets are never fragmented: one
// that is longer than its interface's MTU is refused by the kernel (EMSGSIZE). What ICMP says about
// the rest of the path is not believed, because anybody can say it; whether long packets arrive is
// the transport's to find out. One owner; one thread.
//
// Offloads are asked for one by one and used where the kernel has them:
//   gso        many datagrams of one size leave in one call (UDP_SEGMENT, Linux 4.18)
//   gro        many datagrams of one flow arrive in one call (UDP_GRO, Linux 5.0)
//   batching   several calls in one (sendmmsg, recvmmsg)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/environment.h"
#include "base/status.h"
#include "net/address.h"
#include "net/system_call.h"

namespace spillway::net {

struct SocketBuffers {
  std::size_t receive = 0;  // bytes, as far as the kernel gave them
  std::size_t send = 0;
};

// Sizes both kernel queues of any socket: beyond the system's limits where this process may
// (CAP_NET_ADMIN), up to them where it may not.
SocketBuffers size_socket_buffers(int fd, std::size_t bytes);

struct Offloads {
  bool gso = true;
  bool gro = true;
  bool batching = true;
};

// What of `wanted` this kernel has.
Offloads available_offloads(const Offloads& wanted);

// What SPILLWAY_GSO, SPILLWAY_GRO and SPILLWAY_BATCHING leave on: 0 turns one off.
base::Result<Offloads> offloads_from(const base::Environment& environment);

class UdpSocket {
 public:
  static base::Result<UdpSocket> open(const SocketAddress& bind_to);

  int fd() const { return fd_.get(); }
  const SocketAddress& local() const { return local_; }

  // Has the kernel tell, beside each datagram, its DSCP and ECN, when it arrived, how many were
  // lost because the queue was full, and, if `gro`, where datagrams join. What the kernel does not
  // know it does not tell.
  void tell_about_arrivals(bool gro);
  // Has the kernel drop whatever comes: for a socket that only sends.
  void drop_arrivals();

  // Has the kernel keep what is said about datagrams that left (error_queue.h). Such an error also
  // makes one later call fail that has nothing to do with it: whoever sends or receives tries
  // again.
  void tell_about_errors();

  // The same for this one. A sentence where the system's limit left one smaller.
  std::optional<std::string> size_buffers(std::size_t bytes);

 private:
  UdpSocket(UniqueFd fd, const SocketAddress& local) : fd_(std::move(fd)), local_(local) {}

  UniqueFd fd_;
  SocketAddress local_;
};

}  // namespace spillway::net
