// SPDX-License-Identifier: Apache-2.0
//
// Where a run's time went: how much of the busiest link was used, when, and what the ranks waited
// for while it was not. Made of looks at the switches' ports and the ranks' boards
// (net/wait_board.h), taken at the same moments, again and again.
//
// Between two looks a link could have carried rate times time. What it carried less is idle time;
// while an operation of any rank was under way, it is shared out over what the ranks did: each
// rank's looks at itself in that while have equal parts of it. A rank that has nothing under way is
// with its caller; one that has, and did not look at itself, was computing. A gap is a run of looks
// between which the link was used for less than kGapUse.
//
// Ranks that never counted anything (another transport's) have no part; where none did, nothing is
// known of operations, and only the link's use is told.
//
// Holds kMaxBins of use per link however long it runs: when they are full, each two become one. One
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "net/wait_board.h"

namespace spillway::lab {

inline constexpr double kGapUse = 0.1;

// net::Wait's, then the caller.
inline constexpr std::size_t kTimeParts = net::kWaits + 1;
inline constexpr std::size_t kCallerPart = net::kWaits;
std::string_view time_part_name(std::size_t part);

struct LinkRate {
  std::string name;  // "switch0->host0"
  base::BitRate rate;
};

// One port's at a moment, since the beginning.
struct PortLook {
  std::uint64_t bytes = 0;
  std::uint64_t packets = 0;
};

struct TimeReport {
  std::string link;  // the busiest; empty: no link carried anything
  base::BitRate rate;
  base::Duration elapsed;
  double use = 0.0;    // of the link, of all that time
  base::Duration bin;  // of `use_over_time`; the last may be shorter
  std::vector<double> use_over_time;

  bool knows_operations = false;  // what follows is known
  base::Duration under_way;       // an operation of any rank
  base::Duration idle;            // of the link, meanwhile
  std::array<base::Duration, kTimeParts> idle_by_part{};
  std::uint64_t gaps = 0;
  base::Duration gaps_total;
  base::Duration longest_gap;

  // Of all ranks, of UDP payload.
  std::uint64_t sent_bytes = 0;
  std::uint64_t resent_bytes = 0;
  std::uint64_t wasted_bytes = 0;  // arrived and were there already, or came too late
};

class TimeAccount {
 public:
  static constexpr std::size_t kMaxBins = 240;

  TimeAccount(std::vector<LinkRate> links, std::size_t ranks, base::Duration first_bin);

  // Of as many ports as there are links, in their order; and of all ranks.
  void look(base::Instant at, std::span<const PortLook> ports,
            std::span<const net::WaitCounts> ranks);
  TimeReport report() const;

 private:
  using Parts = std::array<double, kTimeParts>;

  struct Link {
    double waiting_bytes = 0.0;  // told by the port, and not carried yet at the link's rate
    double carried_bytes = 0.0;
    std::vector<double> bins;  // bytes
    base::Duration idle;
    std::array<base::Duration, kTimeParts> idle_by_part{};
    std::uint64_t gaps = 0;
    base::Duration gap;  // the one that lasts
    base::Duration gaps_total;
    base::Duration longest_gap;
  };

  // What ranks did since the last look; nothing under way: all zero.
  Parts parts_of(std::span<const net::WaitCounts> ranks) const;
  // What follows is about the while from the last look until `at`.
  void carry(Link& link, std::size_t index, const PortLook& port, base::Instant at,
             const Parts& parts, bool is_under_way);
  void note_gap(Link& link, double use, base::Duration length);
  void add_to_bins(Link& link, double bytes, base::Instant at) const;
  void make_room(base::Instant at);

  std::vector<LinkRate> rates_;
  std::vector<Link> links_;
  std::vector<PortLook> ports_;         // of the last look
  std::vector<net::WaitCounts> ranks_;  // the same
  base::Instant begin_;
  base::Instant last_;
  bool has_begun_ = false;
  base::Duration bin_;
  base::Duration under_way_;
};

}  // namespace spillway::lab
