// SPDX-License-Identifier: Apache-2.0
//
// Where a run's time went: how much of the busiest link was used, when, and what the ranks waited
// for while it was idle. Computed from looks at the switches' ports and the ranks' boards
// (net/wait_board.h), taken at the same moments.
//
// Between two looks a link could have carried rate x time; the part it did not carry is idle time.
// While any rank has an operation under way, idle time is divided by what the ranks did. Every rank
// has an equal share, which its own looks at itself in that interval split equally. A rank with
// nothing under way is with its caller. One with an operation under way that did not look at itself
// was computing. A gap is a sequence of looks between which the link was used for less than
// kGapUse.
//
// Ranks that never counted anything (another transport's) are ignored. If none did, nothing is
// known of operations, and only the link's use is reported.
//
// Holds kMaxBins of use per link, however long it runs: when they are full, pairs are merged. One
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

// The values of net::Wait, then the caller.
inline constexpr std::size_t kTimeParts = net::kWaits + 1;
inline constexpr std::size_t kCallerPart = net::kWaits;
std::string_view time_part_name(std::size_t part);

struct LinkRate {
  std::string name;  // "switch0->host0"
  base::BitRate rate;
};

// One port's counters at one moment.
struct PortLook {
  std::uint64_t bytes = 0;
  std::uint64_t packets = 0;
};

struct TimeReport {
  std::string link;  // the busiest; empty: no link carried anything
  base::BitRate rate;
  base::Duration elapsed;
  double use = 0.0;    // of the link, over `elapsed`
  base::Duration bin;  // of `use_over_time`; the last may be shorter
  std::vector<double> use_over_time;

  bool knows_operations = false;  // true: the fields below are known
  base::Duration under_way;       // time with an operation of any rank under way
  base::Duration idle;            // of the link, in that time
  std::array<base::Duration, kTimeParts> idle_by_part{};
  std::uint64_t gaps = 0;
  base::Duration gaps_total;
  base::Duration longest_gap;

  // UDP payload of all ranks.
  std::uint64_t sent_bytes = 0;
  std::uint64_t resent_bytes = 0;
  std::uint64_t wasted_bytes = 0;  // duplicates, or arrived too late
};

class TimeAccount {
 public:
  static constexpr std::size_t kMaxBins = 240;

  TimeAccount(std::vector<LinkRate> links, std::size_t ranks, base::Duration first_bin);

  // `ports` has one entry per link, in the same order; `ranks` has all ranks.
  void look(base::Instant at, std::span<const PortLook> ports,
            std::span<const net::WaitCounts> ranks);
  TimeReport report() const;

 private:
  using Parts = std::array<double, kTimeParts>;

  struct Link {
    double waiting_bytes = 0.0;  // counted by the port, not carried yet at the link's rate
    double carried_bytes = 0.0;
    std::vector<double> bins;  // bytes
    base::Duration idle;
    std::array<base::Duration, kTimeParts> idle_by_part{};
    std::uint64_t gaps = 0;
    base::Duration gap;  // the current one
    base::Duration gaps_total;
    base::Duration longest_gap;
  };

  // Shares of what ranks did since the last look; all zero if no rank has counted anything.
  Parts parts_of(std::span<const net::WaitCounts> ranks) const;
  // The following cover the interval from the last look until `at`.
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
