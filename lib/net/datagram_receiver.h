// SPDX-License-Identifier: Apache-2.0
//
// Receives many datagrams per call: recvmmsg over buffers that GRO may fill with many datagrams of
// one flow each. Each datagram is passed on with what the kernel reported about it.
//
// Datagrams that the kernel dropped because the socket's queue was full are counted: this host lost
// them, not the network. Buffers hold 64 KiB, the most that GRO joins, so nothing is cut. While
// buffers arrive well filled, few are requested per call, so that their data is still in a cache
// when it is processed.
//
// With a helper, a full call is followed by one that the helper makes while the first call's
// datagrams are processed; the next receive() takes those. One thread, plus the helper's during
// that call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "net/arrival_notes.h"
#include "net/helper_thread.h"
#include "net/known_sources.h"
#include "net/udp_socket.h"

namespace spillway::net {

struct ReceiveCounters {
  std::uint64_t datagrams = 0;
  std::uint64_t bytes = 0;
  std::uint64_t calls = 0;
  std::uint64_t overflowed = 0;  // dropped because the socket's queue was full
  std::uint64_t strangers = 0;   // from hosts of no peer: dropped unread
};

// `tos` holds DSCP and ECN of the IP header. `arrived` is the kernel's arrival time, or `now` if
// the kernel gave none.
using DatagramHandler =
    std::function<void(base::ByteView datagram, std::uint8_t tos, base::Instant arrived)>;

class DatagramReceiver {
 public:
  // The socket must report arrivals (tell_about_arrivals) and outlive the receiver.
  DatagramReceiver(const UdpSocket& socket, const Offloads& offloads);

  void use_helper(std::unique_ptr<HelperThread> helper);

  // Until the first source is added, datagrams are accepted from anywhere.
  void add_source(const SocketAddress& address);
  void forget_sources();

  // Processes the messages of one call, in order. Returns false if no more are waiting.
  bool receive(base::Instant now, const DatagramHandler& handle);

  const ReceiveCounters& counters() const { return counters_; }

 private:
  struct Arrival {
    std::size_t segment = 0;  // size of joined datagrams; 0: a single datagram
    ArrivalNotes notes;
  };

  // Buffers and results of one call.
  struct Batch {
    std::vector<std::uint8_t> buffers;
    std::vector<std::uint8_t> controls;
    std::vector<iovec> data;
    std::vector<mmsghdr> headers;
    std::vector<sockaddr_storage> names;  // source addresses
    std::size_t asked = 0;                // messages requested
    int came = 0;
    std::uint64_t calls = 0;

    std::size_t bytes() const;
  };

  void prepare(Batch& batch) const;
  int call(Batch& batch) const;
  void fill(Batch& batch, std::size_t asked) const;
  void hand_on(Batch& batch, base::Instant now, const DatagramHandler& handle);
  bool is_stranger(const sockaddr_storage& name);
  Arrival read_control(msghdr& header, base::Instant now);

  const UdpSocket& socket_;
  std::size_t max_messages_;  // per call
  std::size_t buffer_bytes_;  // per message
  std::size_t asked_ = 0;     // for the next call
  Batch batch_;
  Batch ahead_;               // belongs to the helper while it is busy
  bool reads_ahead_ = false;  // ahead_ was requested and not yet taken
  KnownSources sources_;
  bool knows_sources_ = false;
  ArrivalReader reader_;
  ReceiveCounters counters_;
  std::unique_ptr<HelperThread> helper_;  // last: destroyed first
};

}  // namespace spillway::net
