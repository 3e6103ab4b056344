// SPDX-License-Identifier: Apache-2.0
//
// Accounts for a run's time: how much of the busiest link was used, when, and what the ranks waited
// for while that link was idle. A LabWatch takes samples of the switches' ports and of the ranks'
// wait boards (net/wait_board.h) on a thread of its own; a TimeAccount computes the report.
//
// Between two samples a link could have carried rate x time. The part that it did not carry is idle
// time. While any rank has an operation under way, idle time is divided among the activities of the
// ranks: every rank has an equal share, and the counts on its board in that interval divide that
// share. A rank without an operation counts as being with its caller. A rank with an operation that
// counted nothing was computing. A gap is a sequence of samples between which the link was used for
// less than kGapUse.
//
// Ranks that never counted anything use another transport and are ignored. If all are such ranks,
// nothing is known of operations, and only the link's use is reported.
//
// Limit: a TimeAccount holds kMaxBins of use per link, however long the run is. When they are full,
// pairs of bins are merged.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "net/wait_board.h"
#include "sim/scenario/topology.h"
#include "switch/fabric/emulator.h"

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
struct PortSample {
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

// One thread.
class TimeAccount {
 public:
  static constexpr std::size_t kMaxBins = 240;

  TimeAccount(std::vector<LinkRate> links, std::size_t ranks, base::Duration first_bin);

  // `ports` has one entry per link, in the same order; `ranks` has all ranks.
  void add_sample(base::Instant at, std::span<const PortSample> ports,
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

  // The share of each activity since the last sample. All zero if no rank has counted anything.
  Parts parts_of(std::span<const net::WaitCounts> ranks) const;
  // The following cover the interval from the last sample until `at`.
  void carry(Link& link, std::size_t index, const PortSample& port, base::Instant at,
             const Parts& parts, bool is_under_way);
  void note_gap(Link& link, double use, base::Duration length);
  void add_to_bins(Link& link, double bytes, base::Instant at) const;
  void widen_bins(base::Instant at);

  std::vector<LinkRate> rates_;
  std::vector<Link> links_;
  std::vector<PortSample> ports_;       // of the last sample
  std::vector<net::WaitCounts> ranks_;  // the same
  base::Instant begin_;
  base::Instant last_;
  bool has_begun_ = false;
  base::Duration bin_;
  base::Duration under_way_;
};

// ------------------------------------------------------------------ taking samples

inline constexpr base::Duration kWatchInterval = base::milliseconds(10);

// The wait boards of a lab's ranks, as files in the lab's state directory. A rank finds its board's
// path in SPILLWAY_WAITS. Make the boards before the ranks start. If they cannot be made, only the
// links are watched.
class RankBoards {
 public:
  RankBoards(const std::filesystem::path& folder, std::size_t ranks);

  // "SPILLWAY_WAITS=path"; empty if the rank has no board.
  std::vector<std::string> variables(std::size_t rank) const;
  std::vector<net::WaitCounts> read() const;

 private:
  std::vector<std::string> paths_;
  std::vector<net::WaitBoard> boards_;
};

// The rates of the ports' links, by name ("leaf0->spine1#2"); zero if there is no such link.
std::vector<LinkRate> link_rates(const scenario::Topology& topology,
                                 const fabric::FabricSnapshot& fabric);

// Takes a sample every kWatchInterval while a lab's commands run.
class LabWatch {
 public:
  using TakeSnapshot = std::function<fabric::FabricSnapshot()>;

  // `boards` must outlive it.
  LabWatch(const scenario::Topology& topology, const RankBoards& boards,
           TakeSnapshot take_snapshot);
  ~LabWatch();
  LabWatch(const LabWatch&) = delete;
  LabWatch& operator=(const LabWatch&) = delete;

  // Stops taking samples and returns the result.
  TimeReport finish();

 private:
  void work();
  void sample();

  const RankBoards& boards_;
  TakeSnapshot take_snapshot_;
  TimeAccount account_;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace spillway::lab
