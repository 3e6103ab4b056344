// SPDX-License-Identifier: Apache-2.0
//
// A listener's reaction to each datagram: nothing, or an answer that is no longer than the
// question. Answers leave at no more than kAnswerRate in total; questions beyond that are dropped.
// Packets of bursts are counted for their session. Anything else is garbage: counted, never
// answered.
//
// ProberTable bounds the state: counts by session for at most kMaxProbers probers that sent a burst
// recently. A new prober replaces the one that has been silent longest, if for at least kKept;
// otherwise it is turned away.
//
// No I/O: time and bytes are passed in. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "net/send_pacer.h"
#include "tools/doctor/peer/probe_packet.h"
#include "tools/doctor/peer/probe_socket.h"
#include "tools/doctor/peer/wire_watch.h"

namespace spillway::doctor {

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
  std::uint64_t limited = 0;      // questions beyond the rate
  std::uint64_t turned_away = 0;  // questions of unknown sessions, or without room
  std::uint64_t counted = 0;      // packets of bursts
  std::uint64_t garbage = 0;
};

struct Answer {
  std::vector<std::uint8_t> bytes{};  // empty: none
  std::uint8_t tos = 0;
};

class Responder {
 public:
  static constexpr base::BitRate kAnswerRate = base::bits_per_second(10'000'000);
  static constexpr base::Bytes kAnswerBurst = base::bytes(64 * 1024);

  // `host`: the listener's name. `watches`: stale packets will be reported.
  Responder(std::string host, bool watches);

  // `overflowed`: datagrams that the socket has lost so far. `now`: monotonic clock; `wall_now`:
  // time of day.
  Answer take(const ProbeArrival& arrival, std::uint64_t overflowed, base::Instant now,
              std::int64_t wall_now);
  void take_stale(const StalePacket& packet);

  const ResponderCounters& counters() const { return counters_; }

 private:
  void take_burst(const ProbeArrival& arrival, base::Instant now);
  Answer answer_to_question(const ProbePacket& question, const ProbeArrival& arrival,
                            std::uint64_t overflowed, base::Instant now, std::int64_t wall_now);

  std::string host_;
  bool watches_;
  ProberTable probers_;
  net::SendPacer limit_{kAnswerRate, kAnswerBurst};
  ResponderCounters counters_;
};

}  // namespace spillway::doctor
