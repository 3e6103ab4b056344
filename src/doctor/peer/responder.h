// SPDX-License-Identifier: Apache-2.0
//
// What a listener says to each datagram: nothing, or an answer that is no longer than the question.
// Answers leave at no more than kAnswerRate, whoever asks; questions beyond that are not answered,
// as if lost. Bursts are counted for their session, anything else is garbage: counted, never
// answered.
//
// State is bounded by ProberTable: a count for each prober that sent a burst lately, by its
// session, kMaxProbers at most. A new one takes the place of the one that was silent longest, if
// that was silent for kKept at least, and is turned away otherwise.
//
// No I/O: time and bytes are handed in. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "doctor/peer/probe_packet.h"
#include "doctor/peer/probe_socket.h"
#include "doctor/peer/wire_watch.h"
#include "net/send_pacer.h"

namespace spillway::doctor {

class ProberTable {
 public:
  static constexpr std::size_t kMaxProbers = 64;
  static constexpr base::Duration kKept = base::seconds(10);

  struct Prober {
    std::uint64_t session = 0;
    base::Instant heard;
    std::uint64_t overflowed_before = 0;  // at the listener's socket, when it began
    ArrivalSummary summary{};
  };

  // Counts for this session start anew. Null where there is no room.
  Prober* begin(std::uint64_t session, base::Instant now);
  // Null where it is not known.
  Prober* find(std::uint64_t session);
  // The one whose burst carries this tag: the lower half of its session.
  Prober* find_tag(std::uint32_t tag);

  std::size_t size() const { return probers_.size(); }

 private:
  std::vector<Prober> probers_;
};

struct ResponderCounters {
  std::uint64_t answered = 0;
  std::uint64_t limited = 0;      // questions beyond the rate
  std::uint64_t turned_away = 0;  // no room for their session, or it is not known
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

  // `host`: how the listener calls itself. `watches`: stale packets will be reported.
  Responder(std::string host, bool watches);

  // `overflowed`: datagrams that the socket it came by has lost so far. `now` by the monotonic
  // clock, `wall_now` by the time of day.
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
