// SPDX-License-Identifier: Apache-2.0
//
// Datagrams on their way out, gathered so that few calls move many. The caller writes each datagram
// where room() says and commits it with its route; datagrams that follow each other with the same
// route and size form a run, and a run leaves as one GSO buffer. A short control packet between
// long datagrams is put aside so that it does not break their run, and leaves first. flush() hands
// runs to the kernel and says whether all went; while some wait for room in a socket, nothing may
// be added.
//
//   GSO off: a message per datagram.  Batching off as well: a call per datagram.
//
// A kernel or driver that refuses a GSO buffer (EIO) turns GSO off for good. An error may be about
// a datagram that left earlier (UdpSocket::tell_about_errors), so what failed is tried again a few
// times. Datagrams that cannot be sent at all are dropped and counted, and the latest is told: to
// the transport that is loss, but one it can give a reason for.
//
// With a helper, calls that take long are its, and so is the writing of datagrams that were only
// named (add()): flush() hands over what was gathered, and the next is gathered meanwhile, into
// another buffer. What came of it is known when it is taken back, by the next flush() or by
// take_back(), which whoever goes to sleep calls first. What a message's datagrams are written from
// must stay until wait_until_written() of that message has returned. One thread, and the helper's
// between the two.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "net/address.h"
#include "net/helper_thread.h"
#include "net/udp_socket.h"
#include "transport/endpoint.h"
#include "transport/route.h"

namespace spillway::net {

struct SendCounters {
  std::uint64_t datagrams = 0;
  std::uint64_t bytes = 0;
  std::uint64_t calls = 0;
  std::uint64_t waits = 0;     // a socket had no room
  std::uint64_t too_long = 0;  // refused: longer than the MTU of the interface to the peer
  std::uint64_t refused = 0;   // for any other reason
};

struct Unsent {
  std::uint16_t peer = 0;
  std::uint32_t bytes = 0;
  int error = 0;  // an errno
};

// Writes datagrams that were named, on whichever thread.
class DatagramWriter {
 public:
  virtual ~DatagramWriter() = default;
  virtual std::size_t write_data(const transport::Route& route, const wire::DataStamp& stamp,
                                 transport::PayloadSource& source,
                                 base::MutableByteView out) const = 0;
};

class DatagramSender {
 public:
  // Of datagrams that leave as one: an IP packet with its headers is below 64 KiB.
  static constexpr std::size_t kMaxRunBytes = 65'000;

  // Route::path is the number of a socket.
  DatagramSender(std::vector<UdpSocket> sockets, const Offloads& offloads);

  // `writer`, which outlives the sender: of datagrams that are named; none: none are.
  void use_helper(std::unique_ptr<HelperThread> helper, const DatagramWriter* writer = nullptr) {
    helper_ = std::move(helper);
    writer_ = writer;
  }
  // Whether it is to work at present; at first it is.
  void let_help(bool may_help) { may_help_ = may_help; }
  bool has_writer() const { return writer_ != nullptr && may_help_; }

  // Where datagrams to Route::peer go; said before the first of them.
  void set_address(std::uint16_t peer, const SocketAddress& address);

  // Whether another datagram may be written; if not, flush() first.
  bool has_room() const;
  // Where to write it: SPILLWAY_MAX_PACKET bytes.
  base::MutableByteView room();
  void commit(const transport::Route& route, std::size_t size);
  // Where it has a writer: names a datagram of data instead, which the helper will write.
  void add(const transport::Transmission& named);
  // Nothing of this message, or nothing at all, that was named is still to be written: what it is
  // written from may go.
  void wait_until_written(const wire::MessageId& message, std::uint16_t to);
  void wait_until_written();

  // False if some datagrams wait for room in a socket (waiting_fd()).
  bool flush();
  // The same about what the helper was handed; waits for it.
  bool take_back();
  // The helper is not done with what it was handed.
  bool is_busy() const { return helper_ && helper_->is_busy(); }
  // Nothing is left to flush, but for what the helper has.
  bool empty() const { return next_out_.empty() && !waits_; }
  int waiting_fd() const;
  // The latest datagram that was dropped since this was last asked.
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
    bool closed = false;  // the last one was shorter
  };
  // A buffer and the runs in it, one behind the other.
  struct Lane {
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
  // Whose datagrams they are.
  struct NamedMessage {
    wire::MessageId id;
    std::uint16_t to = 0;
    friend bool operator==(const NamedMessage&, const NamedMessage&) = default;
  };
  struct Batch {
    Lane main;
    Lane aside;                // control packets that would have broken a run
    std::vector<Named> named;  // behind what is in the main lane
    std::size_t named_bytes = 0;
    bool empty() const { return main.runs.empty() && aside.runs.empty() && named.empty(); }
  };
  // A batch on its way to the kernel, and what came of it: the helper's while that is busy.
  struct Departure {
    Batch batch;
    Lane* lane = nullptr;  // of which some is left
    std::size_t next = 0;  // of its runs
    unsigned tries = 0;    // of that run that failed
    bool gso_refused = false;
    std::optional<Unsent> unsent;
    SendCounters counters;
  };

  bool extends(const Lane& lane, const transport::Route& route, std::size_t size) const;
  void append(Lane& lane, const transport::Route& route, std::size_t size) const;
  void write_named(Batch& batch) const;
  bool send_all();
  bool send_all(Lane& lane);
  std::size_t same_socket(const Lane& lane) const;
  int send_some(const Lane& lane, std::size_t count);
  bool handle_error(int error, Lane& lane);
  void split_runs(Lane& lane) const;
  void drop_next(Lane& lane, int error);

  std::vector<UdpSocket> sockets_;
  std::unordered_map<std::uint16_t, SocketAddress> addresses_;  // runs point at them
  Offloads offloads_;
  Batch next_out_;  // being gathered
  Departure leaving_;
  std::vector<NamedMessage> leaving_messages_;  // of which something was named in it
  std::atomic<bool> is_written_{true};          // what was named in it
  bool waits_ = false;                          // some of it, for room in a socket
  std::optional<Unsent> unsent_;
  SendCounters counters_;
  const DatagramWriter* writer_ = nullptr;
  bool may_help_ = true;
  std::unique_ptr<HelperThread> helper_;  // last: it ends first
};

}  // namespace spillway::net
