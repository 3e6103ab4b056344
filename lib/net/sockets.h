// SPDX-License-Identifier: Apache-2.0
//
// The kernel's sockets: UDP sockets with their offloads, TCP sockets, the kernel's reports about
// received messages, and its queue of errors about sent datagrams. Carrier says which kind of
// socket packets travel over.
//
// Functions and plain values may be used by any thread; a UdpSocket and an ArrivalReader have one
// owner and one thread. Nothing here blocks.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/environment.h"
#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "net/system_call.h"

namespace spillway::net {

// ------------------------------------------------------------------ carrier

enum class Carrier : std::uint8_t {
  kUdp,
  kTcp,
  kAuto,  // UDP, or TCP to peers that UDP does not reach
};

std::string_view name_of(Carrier carrier);
std::optional<Carrier> carrier_named(std::string_view name);

// From SPILLWAY_CARRIER.
base::Result<Carrier> carrier_from(const base::Environment& environment);

// ------------------------------------------------------------------ UDP

struct SocketBuffers {
  std::size_t receive = 0;  // bytes that the kernel granted
  std::size_t send = 0;
};

// Sizes both kernel queues of any socket. Exceeds the system's limits if this process has
// CAP_NET_ADMIN, else goes up to them.
SocketBuffers size_socket_buffers(int fd, std::size_t bytes);

// Each offload is requested separately and used if the kernel has it:
//   gso        many datagrams of one size leave in one call (UDP_SEGMENT, Linux 4.18)
//   gro        many datagrams of one flow arrive in one call (UDP_GRO, Linux 5.0)
//   batching   several calls in one (sendmmsg, recvmmsg)
struct Offloads {
  bool gso = true;
  bool gro = true;
  bool batching = true;
};

// The subset of `wanted` that this kernel has.
Offloads available_offloads(const Offloads& wanted);

// A non-blocking UDP socket. Packets are never fragmented: the kernel refuses one that exceeds its
// interface's MTU (EMSGSIZE). ICMP messages about the rest of the path are ignored, because anybody
// can forge them; the transport finds out whether long packets arrive. One owner; one thread.
class UdpSocket {
 public:
  static base::Result<UdpSocket> open(const SocketAddress& bind_to);

  int fd() const { return fd_.get(); }
  const SocketAddress& local() const { return local_; }

  // Makes the kernel report with each datagram its DSCP and ECN, its arrival time, and the number
  // of datagrams that a full queue dropped. If `gro`, it also reports the segment size of joined
  // datagrams. Options that the kernel does not know are left out.
  void report_arrivals(bool gro);
  // Makes the kernel drop all arrivals: for a socket that only sends.
  void drop_arrivals();

  // Makes the kernel queue errors about sent datagrams, for read_errors(). Such an error also
  // makes one unrelated later call fail, so callers must retry.
  void report_errors();

  // size_socket_buffers() for this socket. Returns a warning if the system's limits are smaller.
  std::optional<std::string> size_buffers(std::size_t bytes);

 private:
  UdpSocket(UniqueFd fd, const SocketAddress& local) : fd_(std::move(fd)), local_(local) {}

  UniqueFd fd_;
  SocketAddress local_;
};

// ------------------------------------------------------------------ TCP

// Sockets for connections between ranks: small packets leave at once (TCP_NODELAY), the kernel
// sizes its buffers, and little unsent data waits in them, so that urgent packets are not far
// behind. Keepalives preserve idle connections in middleboxes.
base::Result<UniqueFd> listen_tcp(const SocketAddress& address);

struct TcpAttempt {
  UniqueFd fd{};
  int error = 0;  // an errno; nonzero: no socket
};
// Starts to connect from `local`'s host. connect_error() has the result once it is writable.
TcpAttempt connect_tcp(const SocketAddress& local, const SocketAddress& peer);
int connect_error(int fd);  // an errno; 0: connected

// True if a non-blocking call failed with an errno that means "try again".
inline bool is_for_later(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

struct Accepted {
  UniqueFd fd{};  // invalid: no connection waits, or `error`
  SocketAddress from{};
  int error = 0;  // an errno; 0 if no connection waits
};
Accepted accept_tcp(int listening);

// ------------------------------------------------------------------ received messages

// Converts the kernel's receive timestamps, which follow the time of day, into instants of the
// monotonic clock. The offset between the clocks is measured regularly, so a step of the time of
// day does harm only briefly. No instant lies in the future.
class ArrivalClock {
 public:
  // `stamped` comes from SO_TIMESTAMPNS, `now` from base::MonotonicClock.
  base::Instant instant_of(const timespec& stamped, base::Instant now);

 private:
  void measure(base::Instant now);

  base::Duration ahead_;  // of the time of day over the monotonic clock
  base::Instant measured_;
  bool is_measured_ = false;
};

template <typename T>
T control_value(const cmsghdr& control) {
  T value{};
  std::memcpy(&value, CMSG_DATA(&control), sizeof(value));
  return value;
}

struct ArrivalInfo {
  std::uint8_t tos = 0;
  base::Instant at;
};

// Reads the kernel's reports about received messages, on any kind of socket: arrival time, DSCP and
// ECN, and the number of messages that a full queue dropped. One reader per socket; one thread.
class ArrivalReader {
 public:
  // Reads one control message; ignores other kinds. `now` is the time by base::MonotonicClock
  // after the message was received.
  void read(const cmsghdr& control, base::Instant now, ArrivalInfo& notes);

  std::uint64_t overflowed() const { return overflowed_; }

 private:
  ArrivalClock clock_;
  std::uint32_t overflow_seen_ = 0;  // the kernel counts modulo 2^32
  std::uint64_t overflowed_ = 0;
};

// ------------------------------------------------------------------ errors of sent datagrams

// ICMP messages with the beginning of the datagram that they are about, and errors of this kernel.
// Anybody can send such a message, so callers must verify the quoted datagram. ICMP floods are
// cheap to send, so read_errors() takes at most kMaxErrorsRead per call and leaves the rest for
// later.

struct ErrorCounters {
  std::uint64_t refusals = 0;         // closed ports, about datagrams that we sent
  std::uint64_t forged_refusals = 0;  // about datagrams that we never sent, or sent long ago
  std::uint64_t ignored_icmp = 0;     // other errors from the network: too big, no route...
};

struct SocketError {
  int error = 0;              // an errno: ECONNREFUSED if the port is closed
  bool from_network = false;  // false: from this host's own kernel
  SocketAddress to{};         // where the datagram went
  base::ByteView quoted{};    // its beginning; valid until the handler returns
};
using ErrorHandler = std::function<void(const SocketError&)>;

inline constexpr int kMaxErrorsRead = 64;

// Calls `handle` with the errors that wait at a socket after UdpSocket::report_errors(), and clears
// the error that the kernel would return from the next call.
void read_errors(const UdpSocket& socket, const ErrorHandler& handle);

}  // namespace spillway::net
