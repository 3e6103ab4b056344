// SPDX-License-Identifier: Apache-2.0
//
// Estimates how much of this host's incoming link is ours: the rate at which packets came while the
// link surely was busy. The rest of that time it carried other traffic.
//
// A link is busy while packets wait for it, and packets that waited took longer than others. So
// every packet is added with its transit time. Clocks need not agree: what counts is how much
// longer a packet took than the quickest recent packet of the same peer. Delay of one peer's
// packets may be that peer's doing; a queue in front of this host's link delays everybody's.
//
// Between two packets that both waited, the second for longer than the gap between them, the link
// was busy throughout. Such time is summed up in windows of kWindow, with the bytes that came in
// it. A window is conclusive
//
//   if packets of at least two peers waited for a part of it: their rate is what the link had left
//   for us;
//   or if our own packets nearly filled the link: then all of it is ours.
//
// All other windows say nothing: little traffic does not make a slow link. Conclusive windows are
// averaged over kMemory of their time, and forgotten when there was none for kStale.
//
// Clock drift looks like a growing queue. So delays below kNoise count as none; clocks may drift
// that far while a least delay counts. Above kFastest the share stays unknown: there, packets wait
// for hosts that take turns as long as they would in a queue.
//
// Pure; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"

namespace spillway::transport {

class LinkShare {
 public:
  static constexpr base::Duration kWindow = base::milliseconds(2);
  static constexpr base::Duration kMemory = base::milliseconds(250);
  static constexpr base::Duration kStale = base::seconds(10);
  static constexpr base::Duration kEnough = base::milliseconds(20);  // of conclusive windows
  static constexpr base::Duration kNoise = base::microseconds(100);
  static constexpr base::Duration kLeastCounts = base::seconds(2);
  static constexpr base::BitRate kFastest = base::bits_per_second(2'500'000'000);
  static constexpr double kFull = 0.9;           // of the link
  static constexpr double kLeastQueued = 0.125;  // of a window

  explicit LinkShare(base::BitRate rate) : rate_(rate) {}

  // A packet that arrived.
  struct Arrival {
    std::uint16_t peer = 0;
    std::int64_t bytes = 0;        // of UDP payload
    std::uint32_t transit_us = 0;  // transit time, low bits; clocks need not agree
  };
  // Returns how long the packet waited in queues.
  base::Duration add(const Arrival& arrival, base::Instant now);
  // Bytes of ours that came over a stream. They waited in their sender, so their transit times say
  // nothing; but if the link was busy around them, it carried them.
  void add_streamed(std::int64_t bytes);

  // From 0 to 1; empty while unknown.
  std::optional<double> share(base::Instant now) const;

 private:
  // Transit times of a peer's packets, relative to its first.
  struct Lane {
    bool is_known = false;
    std::uint32_t latest_us = 0;       // transit time of the latest packet, low bits
    std::int64_t taken_us = 0;         // the same, relative to the first packet's
    std::int64_t least_us = 0;         // in this stretch of kLeastCounts
    std::int64_t least_before_us = 0;  // in the stretch before
    base::Instant stretch;             // when this stretch began
  };
  struct Window {
    base::Instant begun;
    std::int64_t bytes = 0;         // on the wire
    std::int64_t queued_bytes = 0;  // of these, while the link was busy
    base::Duration queued_time{};
    std::optional<std::uint16_t> peer{};  // the peer whose packets waited
    bool has_others = false;              // packets of another peer waited, too
  };

  base::Duration waited(Lane& lane, std::uint32_t transit_us, base::Instant now);
  void add_to_window(const Arrival& arrival, std::optional<base::Duration> busy);
  void close_window(base::Instant now);
  void tell(double bytes, double time_ns, base::Instant now);

  base::BitRate rate_;
  std::vector<Lane> lanes_;  // by peer
  std::optional<Window> window_;
  base::Instant latest_;       // when the latest packet came
  bool has_waited_ = false;    // whether that packet waited
  std::int64_t streamed_ = 0;  // bytes over streams since then
  double bytes_ = 0.0;         // in conclusive windows, decayed
  double time_ns_ = 0.0;
  base::Instant told_;
};

}  // namespace spillway::transport
