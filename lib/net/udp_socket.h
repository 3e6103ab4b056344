// SPDX-License-Identifier: Apache-2.0
//
// A non-blocking UDP socket and its kernel offloads. Packets are never fragmented: the kernel
// refuses one that exceeds its interface's MTU (EMSGSIZE). ICMP messages about the rest of the path
// are not believed, because anybody can forge them; the transport finds out whether long packets
// arrive. One owner; one thread.
//
// Each offload is requested separately and used if the kernel has it:
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
  std::size_t receive = 0;  // bytes that the kernel granted
  std::size_t send = 0;
};

// Sizes both kernel queues of any socket. Exceeds the system's limits if this process may
// (CAP_NET_ADMIN), else goes up to them.
SocketBuffers size_socket_buffers(int fd, std::size_t bytes);

struct Offloads {
  bool gso = true;
  bool gro = true;
  bool batching = true;
};

// The subset of `wanted` that this kernel has.
Offloads available_offloads(const Offloads& wanted);

// From SPILLWAY_GSO, SPILLWAY_GRO and SPILLWAY_BATCHING: 0 turns one off.
base::Result<Offloads> offloads_from(const base::Environment& environment);

class UdpSocket {
 public:
  static base::Result<UdpSocket> open(const SocketAddress& bind_to);

  int fd() const { return fd_.get(); }
  const SocketAddress& local() const { return local_; }

  // Makes the kernel report with each datagram its DSCP and ECN, its arrival time, and how many a
  // full queue dropped. If `gro`, it also reports the segment size of joined datagrams. Options
  // that the kernel does not know are left out.
  void tell_about_arrivals(bool gro);
  // Makes the kernel drop all arrivals: for a socket that only sends.
  void drop_arrivals();

  // Makes the kernel queue errors about sent datagrams (error_queue.h). Such an error also makes
  // one unrelated later call fail, so callers must retry.
  void tell_about_errors();

  // size_socket_buffers() for this socket. Returns a warning if the system's limits are smaller.
  std::optional<std::string> size_buffers(std::size_t bytes);

 private:
  UdpSocket(UniqueFd fd, const SocketAddress& local) : fd_(std::move(fd)), local_(local) {}

  UniqueFd fd_;
  SocketAddress local_;
};

}  // namespace spillway::net
