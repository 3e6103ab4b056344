// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives many datagrams per system call.
//
// DatagramSender collects outgoing datagrams into GSO runs; SendPacer keeps them at the link's
// rate. DatagramReceiver reads batches that GRO may have joined. Each works on one thread, plus a
// helper's for part of the time; the classes below say when.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "net/address.h"
#include "net/sockets.h"
#include "net/system_call.h"
#include "transport/endpoint.h"

namespace spillway::net {

// ------------------------------------------------------------------ sender

// Collects outgoing datagrams so that few calls send many. The caller writes each datagram where
// room() says and commits it with its route. Consecutive datagrams with the same route and size
// form a run, which leaves as one GSO buffer. A short control packet between long datagrams goes to
// an aside buffer, so that it does not break their run, and leaves first. flush() hands runs to the
// kernel and says whether all left. While some wait for room in a socket, nothing may be added.
//
//   GSO off: a message per datagram.  Batching off as well: a call per datagram.
//
// A kernel or driver that refuses a GSO buffer (EIO) turns GSO off for good. An error may be about
// an earlier datagram (UdpSocket::report_errors), so a failed send is retried a few times.
// Datagrams that cannot be sent at all are dropped and counted, and the latest is reported. The
// transport treats them as lost, but can give the reason.
//
// With a helper, the helper makes the long calls and writes datagrams that were only named (add()).
// flush() hands over the batch, and the next one is collected meanwhile in another buffer. The
// result is known after take_back() or the next flush(); callers must call take_back() before they
// sleep. A message's payload source must stay valid until wait_until_written() for that message has
// returned. One thread, plus the helper's from flush() to take_back().

struct SendCounters {
  std::uint64_t datagrams = 0;
  std::uint64_t bytes = 0;
  std::uint64_t calls = 0;
  std::uint64_t waits = 0;     // a socket had no room
  std::uint64_t too_long = 0;  // longer than the MTU of the interface to the peer
  std::uint64_t refused = 0;   // for other reasons
};

struct Unsent {
  std::uint16_t peer = 0;
  std::uint32_t bytes = 0;
  int error = 0;  // an errno
};

// Writes named datagrams, on the caller's or the helper's thread.
class DatagramWriter {
 public:
  virtual ~DatagramWriter() = default;
  virtual std::size_t write_data(const transport::Route& route, const wire::DataStamp& stamp,
                                 transport::PayloadSource& source,
                                 base::MutableByteView out) const = 0;
};

class DatagramSender {
 public:
  // Limit of one GSO run: an IP packet with its headers stays below 64 KiB.
  static constexpr std::size_t kMaxRunBytes = 65'000;

  // Route::path is an index into `sockets`.
  DatagramSender(std::vector<UdpSocket> sockets, const Offloads& offloads);

  // `writer` writes named datagrams and must outlive the sender. Null: add() may not be used.
  void use_helper(std::unique_ptr<HelperThread> helper, const DatagramWriter* writer = nullptr) {
    helper_ = std::move(helper);
    writer_ = writer;
  }
  // Turns the use of the helper on or off; initially on.
  void let_help(bool may_help) { may_help_ = may_help; }
  bool has_writer() const { return writer_ != nullptr && may_help_; }

  // Sets the address of Route::peer. Must precede the first datagram to it.
  void set_address(std::uint16_t peer, const SocketAddress& address);

  // True if another datagram may be written; if false, call flush() first.
  bool has_room() const;
  // Where to write it: SPILLWAY_MAX_PACKET bytes.
  base::MutableByteView room();
  void commit(const transport::Route& route, std::size_t size);
  // Names a data datagram that the helper will write, instead of writing it now. Needs a writer.
  void add(const transport::Transmission& named);
  // Waits until no named datagram of this message, or of any message, remains to be written. Its
  // payload source may be destroyed afterwards.
  void wait_until_written(const wire::MessageId& message, std::uint16_t to);
  void wait_until_written();

  // False if some datagrams wait for room in a socket (waiting_fd()).
  bool flush();
  // Like flush(), for the batch that the helper has; waits for the helper.
  bool take_back();
  // True while the helper works on its batch.
  bool is_busy() const { return helper_ && helper_->is_busy(); }
  // True if nothing is left to flush, except what the helper has.
  bool empty() const { return next_out_.empty() && !waits_; }
  int waiting_fd() const;
  // The latest datagram that was dropped since the last call.
  std::optional<Unsent> take_unsent() { return std::exchange(unsent_, std::nullopt); }

  const Offloads& offloads() const { return offloads_; }
  const SendCounters& counters() const { return counters_; }
  std::span<const UdpSocket> sockets() const { return sockets_; }

 private:
  struct Run {
    transport::Route route;
    const SocketAddress* address = nullptr;
    const std::uint8_t* data = nullptr;
    std::uint32_t bytes = 0;
    std::uint16_t segment = 0;  // size of each datagram but the last
    std::uint16_t segments = 0;
    bool closed = false;  // the last datagram was shorter
  };
  // A buffer and the consecutive runs in it.
  struct RunBuffer {
    std::vector<std::uint8_t> buffer;
    std::size_t used = 0;
    std::vector<Run> runs;
  };
  // A datagram that is still to be written.
  struct Named {
    transport::Route route;
    wire::DataStamp stamp;
    transport::PayloadSource* source = nullptr;
  };
  // Message of a named datagram.
  struct NamedMessage {
    wire::MessageId id;
    std::uint16_t to = 0;
    friend bool operator==(const NamedMessage&, const NamedMessage&) = default;
  };
  struct Batch {
    RunBuffer main;
    RunBuffer aside;           // control packets that would have broken a run
    std::vector<Named> named;  // to be written after the main buffer's content
    std::size_t named_bytes = 0;
    bool empty() const { return main.runs.empty() && aside.runs.empty() && named.empty(); }
  };
  // A batch that is being sent, with its results. Belongs to the helper while that is busy.
  struct Departure {
    Batch batch;
    RunBuffer* part = nullptr;  // part being sent; null: all sent
    std::size_t next = 0;       // index of its next run
    unsigned tries = 0;         // failed attempts at that run
    bool gso_refused = false;
    std::optional<Unsent> unsent;
    SendCounters counters;
  };

  bool extends(const RunBuffer& part, const transport::Route& route, std::size_t size) const;
  void append(RunBuffer& part, const transport::Route& route, std::size_t size) const;
  void write_named(Batch& batch) const;
  bool send_all();
  bool send_all(RunBuffer& part);
  std::size_t same_socket(const RunBuffer& part) const;
  int send_some(const RunBuffer& part, std::size_t count);
  bool handle_error(int error, RunBuffer& part);
  void split_runs(RunBuffer& part) const;
  void drop_next(RunBuffer& part, int error);

  std::vector<UdpSocket> sockets_;
  std::unordered_map<std::uint16_t, SocketAddress> addresses_;  // runs point into it
  Offloads offloads_;
  Batch next_out_;  // being collected
  Departure leaving_;
  std::vector<NamedMessage> leaving_messages_;  // messages with named datagrams in leaving_
  std::atomic<bool> is_written_{true};          // leaving_'s named datagrams are written
  bool waits_ = false;                          // part of leaving_ waits for room in a socket
  std::optional<Unsent> unsent_;
  SendCounters counters_;
  const DatagramWriter* writer_ = nullptr;
  bool may_help_ = true;
  std::unique_ptr<HelperThread> helper_;  // last: destroyed first
};

// Paces datagrams so that a host does not send faster than its link: a token bucket that fills at
// the rate and holds at most a burst. Senders overdraw it by half a burst and then wait until the
// debt is paid. Sleeping between any two packets would cost too many sleeps and wakeups. A rate of
// zero never waits. Pure; one thread.

class SendPacer {
 public:
  // A rate of zero: no pacing.
  SendPacer(base::BitRate rate, base::Bytes burst)
      : rate_(rate),
        burst_time_(rate > base::BitRate() ? base::transmission_time(burst, rate)
                                           : base::Duration()),
        ahead_(burst_time_ / 2) {}

  bool may_send(base::Instant now) const { return next_ <= (holds_ ? now : now + ahead_); }
  // When may_send() becomes true.
  base::Instant next() const { return holds_ ? next_ : next_ - ahead_; }
  void sent(base::Bytes bytes, base::Instant now) {
    if (rate_ > base::BitRate()) {
      // Unused time beyond one burst is forfeited.
      next_ = std::max(next_, now - burst_time_) + base::transmission_time(bytes, rate_);
      holds_ = next_ > now + ahead_;
    }
  }

 private:
  base::BitRate rate_;
  base::Duration burst_time_;
  base::Duration ahead_;  // how far the bucket may be overdrawn
  base::Instant next_{base::nanoseconds(INT64_MIN / 2)};
  bool holds_ = false;  // overdrawn, and the debt not yet paid
};

// ------------------------------------------------------------------ receiver

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
  // The socket must report arrivals (report_arrivals) and outlive the receiver.
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
    ArrivalInfo notes;
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
