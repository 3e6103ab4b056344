// SPDX-License-Identifier: Apache-2.0
//
// Datagrams off a socket, many at a call: recvmmsg over buffers that GRO may fill with many
// datagrams of one flow each. Each is handed on with what the kernel said about it.
//
// Datagrams the kernel threw away because the socket's queue was full are counted: that is this
// host's loss, not the network's. Buffers hold 64 KiB, what GRO joins at most, so nothing is cut;
// while they come filled, few are asked for at a time, because what is read together should still
// be in a cache when it is looked at.
//
// With a helper, a call that came back full is followed by one that the helper makes while its
// datagrams are handed on; the next receive() takes those. One thread, and the helper's for that
// call.
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
  std::uint64_t overflowed = 0;  // lost because the socket's queue was full
  std::uint64_t strangers = 0;   // from hosts that are no peer's: dropped unread
};

// `tos`: DSCP and ECN of its IP header. `arrived`: when the kernel got it; `now` if it did not say.
using DatagramHandler =
    std::function<void(base::ByteView datagram, std::uint8_t tos, base::Instant arrived)>;

class DatagramReceiver {
 public:
  // The socket must tell about arrivals and outlive the receiver.
  DatagramReceiver(const UdpSocket& socket, const Offloads& offloads);

  void use_helper(std::unique_ptr<HelperThread> helper);

  // Until the first is added, datagrams are taken from anywhere.
  void add_source(const SocketAddress& address);
  void forget_sources();

  // One call's worth of what waits, in order. False if that was all.
  bool receive(base::Instant now, const DatagramHandler& handle);

  const ReceiveCounters& counters() const { return counters_; }

 private:
  struct Arrival {
    std::size_t segment = 0;  // where datagrams join; 0: it is one
    ArrivalNotes notes;
  };

  // What one call fills.
  struct Batch {
    std::vector<std::uint8_t> buffers;
    std::vector<std::uint8_t> controls;
    std::vector<iovec> data;
    std::vector<mmsghdr> headers;
    std::vector<sockaddr_storage> names;  // where they came from
    std::size_t asked = 0;                // messages
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
  std::size_t max_messages_;  // of a call
  std::size_t buffer_bytes_;  // of a message
  std::size_t asked_ = 0;     // of the next call
  Batch batch_;
  Batch ahead_;               // the helper's while it is busy
  bool reads_ahead_ = false;  // ahead_ was begun and not yet taken
  KnownSources sources_;
  bool knows_sources_ = false;
  ArrivalReader reader_;
  ReceiveCounters counters_;
  std::unique_ptr<HelperThread> helper_;  // last: it ends first
};

}  // namespace spillway::net
