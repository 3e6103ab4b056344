// SPDX-License-Identifier: Apache-2.0
//
// How much of this host's link is really its own on the way in: what comes through it in time in
// which the link surely was busy. The rest of that time it carried somebody else's.
//
// A link is busy while packets wait for it, and packets that waited were under way for longer than
// others. So every packet is fed with what it took. Clocks need not agree: what counts is how much
// longer that is than the least of late with the same peer. Delay of one peer's packets may be that
// peer's doing; a queue that is in front of this host's link delays everybody's.
//
// Between two packets that both waited, the second for longer than it is behind the first, the link
// was busy throughout. Such time is summed up in windows of kWindow, with what came in it. A window
// tells something
//
//   if packets of two peers at least waited, for a part of it: their rate is what the link had left
//   for us;
//   or if the link was nearly full with our own: then it is ours.
//
// All other windows say nothing: a link on which little arrives is not a slow one. What windows
// told is averaged over kMemory of their time, and forgotten when none has told anything for
// kStale.
//
// Drift of clocks looks like a queue that grows: delays below kNoise count as none, which clocks
// may drift in the time for which a least delay counts. Of links above kFastest nothing is known:
// there packets wait for hosts that take turns as long as they would in a queue.
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
  static constexpr base::Duration kEnough = base::milliseconds(20);  // of windows that tell
  static constexpr base::Duration kNoise = base::microseconds(100);
  static constexpr base::Duration kLeastCounts = base::seconds(2);
  static constexpr base::BitRate kFastest = base::bits_per_second(2'500'000'000);
  static constexpr double kFull = 0.9;           // of the link
  static constexpr double kLeastQueued = 0.125;  // of a window

  explicit LinkShare(base::BitRate rate) : rate_(rate) {}

  // A packet that came.
  struct Arrival {
    std::uint16_t peer = 0;
    std::int64_t bytes = 0;      // of UDP payload
    std::uint32_t taken_us = 0;  // on its way; clocks need not agree
  };
  void add(const Arrival& arrival, base::Instant now);

  // From 0 to 1; nothing while that is not known.
  std::optional<double> share(base::Instant now) const;

 private:
  // What packets of a peer take, relative to its first.
  struct Lane {
    bool is_known = false;
    std::uint32_t first_us = 0;
    std::int32_t least_us = 0;         // of this stretch of kLeastCounts
    std::int32_t least_before_us = 0;  // of the one before
    base::Instant stretch;             // when this one began
  };
  struct Window {
    base::Instant begun;
    std::int64_t bytes = 0;         // on the wire
    std::int64_t queued_bytes = 0;  // of these, in time in which the link was busy
    base::Duration queued_time{};
    std::optional<std::uint16_t> peer{};  // whose packets waited
    bool has_others = false;              // another's did, too
  };

  base::Duration waited(Lane& lane, std::uint32_t taken_us, base::Instant now);
  void close_window(base::Instant now);
  void tell(double bytes, double time_ns, base::Instant now);

  base::BitRate rate_;
  std::vector<Lane> lanes_;  // by peer
  std::optional<Window> window_;
  base::Instant latest_;     // packet
  bool has_waited_ = false;  // that one
  double bytes_ = 0.0;       // of windows that told, the older the less
  double time_ns_ = 0.0;
  base::Instant told_;
};

}  // namespace spillway::transport
