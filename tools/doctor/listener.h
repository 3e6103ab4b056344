// SPDX-License-Identifier: Apache-2.0
//
// The end of a path that answers `spillway doctor --peer`: what it replies (Responder, without
// I/O), and the listener with its socket (Listener).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "net/datagrams.h"
#include "tools/doctor/probe_packet.h"
#include "tools/doctor/probe_socket.h"
#include "tools/doctor/trim_probe.h"

namespace spillway::doctor {

// A listener's reaction to each datagram: nothing, or a reply that is no longer than the
// request. Answers leave at no more than kReplyRate in total; requests beyond that are dropped.
// Packets of bursts are counted for their session. Anything else is garbage: counted, never
// answered.
//
// ProberTable bounds the state: counts by session for at most kMaxProbers probers that sent a burst
// recently. A new prober replaces the one that has been silent longest, if for at least kKept;
// otherwise it is turned away.
//
// No I/O: time and bytes are passed in. One thread.

class ProberTable {
 public:
  static constexpr std::size_t kMaxProbers = 64;
  static constexpr base::Duration kKept = base::seconds(10);

  struct Prober {
    std::uint64_t session = 0;
    base::Instant heard;
    std::uint64_t overflowed_before = 0;  // losses at the listener's socket before it began
    ArrivalSummary summary{};
  };

  // Restarts the counts of this session. Null if there is no room.
  Prober* begin(std::uint64_t session, base::Instant now);
  // Null if unknown.
  Prober* find(std::uint64_t session);
  // Finds the prober whose burst carries this tag, the lower half of its session.
  Prober* find_tag(std::uint32_t tag);

  std::size_t size() const { return probers_.size(); }

 private:
  std::vector<Prober> probers_;
};

struct ResponderCounters {
  std::uint64_t answered = 0;
  std::uint64_t limited = 0;   // requests beyond the rate
  std::uint64_t rejected = 0;  // requests of unknown sessions, or without room
  std::uint64_t counted = 0;   // packets of bursts
  std::uint64_t garbage = 0;
};

struct Reply {
  std::vector<std::uint8_t> bytes{};  // empty: none
  std::uint8_t tos = 0;
};

class Responder {
 public:
  static constexpr base::BitRate kReplyRate = base::bits_per_second(10'000'000);
  static constexpr base::Bytes kReplyBurst = base::bytes(64 * 1024);

  // `host`: the listener's name. `watches`: stale packets will be reported.
  Responder(std::string host, bool watches);

  // `overflowed`: datagrams that the socket has lost so far. `now`: monotonic clock; `wall_now`:
  // time of day.
  Reply take(const ProbeArrival& arrival, std::uint64_t overflowed, base::Instant now,
             std::int64_t wall_now);
  void take_stale(const StalePacket& packet);

  const ResponderCounters& counters() const { return counters_; }

 private:
  void take_burst(const ProbeArrival& arrival, base::Instant now);
  Reply reply_to_request(const ProbePacket& request, const ProbeArrival& arrival,
                         std::uint64_t overflowed, base::Instant now, std::int64_t wall_now);

  std::string host_;
  bool watches_;
  ProberTable probers_;
  net::SendPacer limit_{kReplyRate, kReplyBurst};
  ResponderCounters counters_;
};

// `spillway doctor --listen`: a Responder on sockets, for any number of probers. With the necessary
// privileges it also watches the wire for stale packets. The Responder bounds state and the rate of
// replies. Each socket gets its turn after a bounded number of datagrams. One thread.

inline constexpr std::uint16_t kDefaultPort = 7078;

class Listener {
 public:
  // `addresses`: at least one.
  static base::Result<Listener> open(std::span<const net::SocketAddress> addresses);
  // Listens on IPv4 and IPv6, or on IPv4 alone if the host has no IPv6.
  static base::Result<Listener> open_everywhere(std::uint16_t port);

  // Runs until `stop_fd` is readable or `end` is reached.
  void run(int stop_fd, base::Instant end);

  std::vector<net::SocketAddress> addresses() const;
  bool watches() const { return !watches_.empty(); }
  const ResponderCounters& counters() const { return responder_.counters(); }

 private:
  Listener(std::vector<ProbeSocket> sockets, std::vector<WireWatch> watches);

  void serve(ProbeSocket& socket);

  std::vector<ProbeSocket> sockets_;
  std::vector<WireWatch> watches_;
  Responder responder_;
};

}  // namespace spillway::doctor
