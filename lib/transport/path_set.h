// SPDX-License-Identifier: Apache-2.0
//
// The paths (UDP source ports) between two ranks: which one takes the next burst, what was lost and
// what arrived.
//
// Each path is a FIFO through the network, near enough. The receiver reports, per path, how many
// packets came, which was the latest, and which of the 64 before that one are of use. A packet that
// was sent on the path before the latest and did not come is lost. Packets still unreported a long
// time after they were sent are lost too. Both move a horizon forward; reports may be lost,
// duplicated or come late, and a packet that turns up after all is simply no longer lost.
//
// The sender remembers what its latest 64 packets on a path were. So a report names the packets
// that are missing: they can be sent again at once (gaps). A packet counts as missing when
// kReordered later ones, none more urgent, are there: switches let urgent packets overtake. If a
// report comes too late to name a packet, a BITMAP will.
//
//   good     takes its turn, but sits out rounds when its packets come marked or late: steering
//   retired  loses clearly more than the others (gray failure), or everything; sits out a while
//   trial    has one burst on its way to find out whether it works again
//
// The last good path is never retired. Counters have 64 bits, reports their low 32. One thread;
// some 1,400 bytes per path that is used.
//
// PathSet is the sender's half of this, PathIntake the receiver's.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "transport/round_trip.h"
#include "wire/control_packet.h"
#include "wire/packet.h"

namespace spillway::transport {

// The path field of packets that a stream carries, and of the report about them. They have numbers
// of their own, in the stream's order; a report of them says only how far they have come.
inline constexpr std::uint8_t kStreamPath = 64;

struct PathConfig {
  base::Duration delay_target = base::microseconds(50);
  base::Duration retire_first = base::milliseconds(1);  // how long a bad path sits out at first
  base::Duration retire_longest = base::milliseconds(128);
  std::uint64_t first_number = 0;  // counters count on from here, at both ends
};

// A sender's memory of a packet.
struct SentPacket {
  std::uint32_t slot = 0;    // of its message
  std::uint16_t packet = 0;  // index in the message
  std::uint16_t bytes = 0;
  std::uint8_t priority = 0;
  std::uint8_t serial = 0;  // tells messages apart that had the same slot
};

// The news in a CREDIT since the one before, summed over paths.
struct PathNews {
  base::Duration round_trip{};  // of the latest packet reported
  std::uint32_t packets = 0;    // arrived
  std::uint32_t lost = 0;
  std::uint32_t longest = 0;       // bytes of the longest that arrived
  std::vector<SentPacket> gaps{};  // packets that are missing or of no use, first noticed now
};

class PathSet {
 public:
  static constexpr unsigned kMaxPaths = kStreamPath;
  static constexpr std::uint64_t kRemembered = 64;  // packets of a path
  static constexpr unsigned kReordered = 3;

  PathSet(unsigned paths, const PathConfig& config);

  // The path for the next burst.
  std::uint8_t choose(base::Instant now);
  // Counts a packet and remembers what it was; returns its number.
  std::uint64_t on_sent(std::uint8_t path, const SentPacket& what);

  // Applies a report and adds to `news`; false if there is no such path.
  bool on_report(const spillway_path_report& report, base::Instant now, PathNews& news);

  // Gives up packets sent before `sent_before`, and adds the losses to `news`.
  void expire(base::Instant sent_before, base::Instant now, PathNews& news);

  // A path for a control packet, which is not counted: mostly a good one.
  std::uint8_t choose_for_control();

  // Number of the latest packet over a path; 0 if there is no such path.
  std::uint64_t latest_on(std::uint8_t path) const {
    return path < paths_.size() ? paths_[path].sent : 0;
  }
  // Packets that were neither reported nor given up.
  std::uint64_t in_flight() const { return in_flight_; }
  std::uint64_t retirements() const { return retirements_; }
  unsigned good_paths() const { return good_; }
  // The path that lost the most packets so far.
  std::uint8_t worst() const;
  std::size_t memory_bytes() const;
  bool is_good(std::uint8_t path) const { return paths_[path].state == State::kGood; }

 private:
  enum class State : std::uint8_t { kGood, kRetired, kTrial };

  struct Burst {
    base::Instant begun;
    std::uint64_t before = 0;  // packets sent on the path before this burst
  };
  static constexpr std::uint32_t kBursts = 32;  // remembered per path

  struct Path {
    State state = State::kGood;
    std::uint8_t sit_out = 0;  // turns to skip
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::uint64_t horizon = 0;   // packets up to this one are received or lost
    std::uint64_t reported = 0;  // raw, as in the latest report: networks duplicate packets
    std::uint64_t marked = 0;
    std::uint64_t settled = 0;      // gaps up to this number were told
    std::uint32_t first_burst = 0;  // bursts [first_burst, next_burst) modulo kBursts are kept
    std::uint32_t next_burst = 0;
    std::uint32_t judged_received = 0;  // since the path was last judged
    std::uint32_t judged_lost = 0;
    std::uint32_t silent_lost = 0;  // lost since the last packet that came
    base::Instant retired_until;
    base::Duration retire_for;
    std::array<Burst, kBursts> bursts;
    std::vector<SentPacket> remembered;  // kRemembered, by number; empty until something was sent
  };
  struct Standing {
    std::uint64_t in_flight;
    std::uint64_t lost;
  };

  static Standing standing(const Path& path);
  static void find_gaps(Path& path, const spillway_path_report& report, PathNews& news);
  static std::uint64_t horizon_at(const Path& path, const spillway_path_report& report);
  static void forget_bursts(Path& path, base::Instant begun_before);
  void begin_burst(Path& path, base::Instant now);
  void account(Path& path, const Standing& before, std::uint32_t received, base::Instant now,
               PathNews& news);
  void judge(Path& path, base::Instant now);
  bool loses_more_than_others(const Path& path) const;
  void retire(Path& path, base::Instant now);
  void steer(Path& path, const spillway_path_report& report, bool is_marked, base::Instant now,
             PathNews& news);
  bool takes_turn(Path& path, base::Instant now);

  PathConfig config_;
  std::vector<Path> paths_;
  unsigned good_;
  unsigned next_ = 0;
  std::uint32_t control_draw_ = 1;
  std::uint64_t in_flight_ = 0;  // packets
  base::Instant oldest_burst_;   // no burst with packets in flight began before
  RoundTrip round_trip_;         // on any path
  // Totals of all paths, decayed; a single path is compared with them.
  double total_received_ = 0;
  double total_lost_ = 0;
  std::uint64_t retirements_ = 0;
};

// Counts what came over each path from one peer since it joined. Reports carry the counts of paths
// with news, so nothing is lost with a lost report.
class PathIntake {
 public:
  struct Arrival {
    std::uint8_t path = 0;  // < PathSet::kMaxPaths
    std::uint64_t number = 0;
    std::uint32_t timestamp_us = 0;
    bool marked = false;
  };

  explicit PathIntake(std::uint64_t first_number = 0)
      : first_number_(first_number), sent_(first_number), received_(first_number) {}

  // Returns false, and counts nothing, for a packet that was counted before, or so long ago that it
  // cannot tell: a copy, or a replay.
  bool add(const Arrival& arrival, base::Instant now) {
    if (arrival.path >= paths_.size()) {
      paths_.resize(arrival.path + 1U, fresh_path());
    }
    Path& path = paths_[arrival.path];
    if (!path.is_first(arrival.number)) {
      return false;
    }
    path.has_come = true;
    ++path.report.packets;
    path.report.marked += arrival.marked ? 1 : 0;
    ++received_;
    if (arrival.number > path.newest) {
      sent_ += arrival.number - path.newest;
      path.advance(arrival.number);
      path.report.echo_us = arrival.timestamp_us;
      path.report.echo_number = static_cast<std::uint32_t>(arrival.number);
      path.latest = now;
    }
    path.mark(arrival.number);
    news_ |= std::uint64_t{1} << arrival.path;
    return true;
  }

  // The packet is of no use: its sender shall know.
  void on_unusable(std::uint8_t index, std::uint64_t number) {
    Path& path = paths_[index];
    if (path.newest - number < PathSet::kRemembered) {
      path.unusable |= std::uint64_t{1} << (path.newest - number);
    }
  }

  // Packets sent over all paths, lost ones included, up to the latest that came over each; counted
  // from the first number.
  std::uint64_t sent() const { return sent_; }
  // Packets that came, counted likewise.
  std::uint64_t received() const { return received_; }

  // Adds the reports of paths with news, as many as fit in one packet.
  void report(base::Instant now, wire::ControlPacket::Credit& credit) {
    while (news_ != 0 && credit.path_count < SPILLWAY_MAX_PATH_REPORTS) {
      const int index = std::countr_zero(news_);
      news_ &= news_ - 1;
      Path& path = paths_[static_cast<std::size_t>(index)];
      path.report.path = static_cast<std::uint8_t>(index);
      path.report.usable = path.seen & ~path.unusable;
      const std::int64_t hold_us = (now - path.latest).count() / 1000;
      path.report.hold_us = static_cast<std::uint32_t>(std::min<std::int64_t>(hold_us, UINT32_MAX));
      credit.paths[credit.path_count++] = path.report;
    }
  }

  // Makes the next report cover every path again.
  void refresh() {
    for (std::size_t index = 0; index < paths_.size(); ++index) {
      news_ |= paths_[index].has_come ? std::uint64_t{1} << index : 0;
    }
  }

 private:
  struct Path {
    spillway_path_report report{};
    std::uint64_t newest = 0;    // highest packet number that came
    base::Instant latest;        // when it came
    std::uint64_t seen = 0;      // bit i: newest - i came
    std::uint64_t unusable = 0;  // bit i: newest - i is of no use
    bool has_come = false;       // anything over this path

    bool is_first(std::uint64_t number) const {
      return number > newest || (newest - number < 64 && (seen >> (newest - number) & 1) == 0);
    }
    void advance(std::uint64_t number) {
      const bool goes_on = number - newest < 64;
      seen = goes_on ? seen << (number - newest) : 0;
      unusable = goes_on ? unusable << (number - newest) : 0;
      newest = number;
    }
    void mark(std::uint64_t number) { seen |= std::uint64_t{1} << (newest - number); }
  };

  Path fresh_path() const {
    const auto low = static_cast<std::uint32_t>(first_number_);
    Path path;
    path.newest = first_number_;
    path.seen = ~std::uint64_t{0};
    path.report.packets = path.report.marked = low;
    return path;
  }

  std::uint64_t first_number_;
  std::uint64_t sent_;
  std::uint64_t received_;
  std::vector<Path> paths_;
  std::uint64_t news_ = 0;  // bit per path
};

}  // namespace spillway::transport
