// SPDX-License-Identifier: Apache-2.0
//
// The paths (UDP source ports) between two ranks: which one takes the next burst, what is in
// flight, what was lost and what arrived.
//
// Each path is a FIFO through the network, near enough. The receiver reports, per path, how many
// packets came and which was the latest; what was sent on the path before that one and did not come
// is lost. Packets still unreported a long time after they were sent are lost too. Both move a
// horizon forward, and nothing else is kept: reports may be lost, duplicated or come late, and a
// packet that turns up after all is simply no longer lost.
//
//   good     takes its turn, but sits out rounds when its packets come marked or late: steering
//   retired  loses clearly more than the others (gray failure), or everything; sits out a while
//   trial    has one burst on its way to find out whether it works again
//
// The last good path is never retired. Counters have 64 bits, reports their low 32. One thread;
// some 700 bytes per path, fixed.
//
// PathSet is the sender's half of this, PathIntake the receiver's.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "transport/congestion_control.h"
#include "wire/control_packet.h"
#include "wire/packet.h"

namespace spillway::transport {

struct PathConfig {
  base::Duration delay_target = base::microseconds(50);
  base::Duration retire_first = base::milliseconds(1);  // how long a bad path sits out at first
  base::Duration retire_longest = base::milliseconds(128);
  std::uint64_t first_number = 0;  // counters count on from here, at both ends
};

class PathSet {
 public:
  static constexpr unsigned kMaxPaths = 64;

  PathSet(unsigned paths, const PathConfig& config);

  // The path for the next burst.
  std::uint8_t choose(base::Instant now);
  // Counts a packet; returns its number.
  std::uint64_t on_sent(std::uint8_t path, std::uint32_t bytes);

  // Applies a report and adds its news to `sample`; false if there is no such path.
  bool on_report(const spillway_path_report& report, base::Instant now, FeedbackSample& sample);

  // Gives up packets sent before `sent_before`, and adds the losses to `sample`.
  void expire(base::Instant sent_before, base::Instant now, FeedbackSample& sample);

  // A path for a control packet, which is not counted: mostly a good one.
  std::uint8_t choose_for_control();

  std::int64_t in_flight_bytes() const { return in_flight_bytes_; }
  // Number of the latest packet over a path; 0 if there is no such path.
  std::uint64_t latest_on(std::uint8_t path) const {
    return path < paths_.size() ? paths_[path].sent : 0;
  }
  std::uint64_t retirements() const { return retirements_; }
  unsigned good_paths() const { return good_; }
  // The path that lost the most packets so far.
  std::uint8_t worst() const;
  std::size_t memory_bytes() const { return paths_.capacity() * sizeof(Path); }
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
    std::uint8_t sit_out = 0;        // turns to skip
    std::uint32_t packet_bytes = 0;  // of the latest packet; those of one job are alike
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::uint64_t horizon = 0;   // packets up to this one are received or lost
    std::uint64_t reported = 0;  // raw, as in the latest report: networks duplicate packets
    std::uint64_t reported_bytes = 0;
    std::uint64_t marked = 0;
    std::uint64_t trimmed = 0;
    std::uint32_t first_burst = 0;  // bursts [first_burst, next_burst) modulo kBursts are kept
    std::uint32_t next_burst = 0;
    std::uint32_t judged_received = 0;  // since the path was last judged
    std::uint32_t judged_lost = 0;
    std::uint32_t silent_lost = 0;  // lost since the last packet that came
    base::Instant retired_until;
    base::Duration retire_for;
    std::array<Burst, kBursts> bursts;
  };
  struct Standing {
    std::int64_t in_flight_bytes;
    std::uint64_t lost_packets;
  };

  static Standing standing(const Path& path);
  static std::uint64_t horizon_at(const Path& path, const spillway_path_report& report);
  static void forget_bursts(Path& path, base::Instant begun_before);
  void begin_burst(Path& path, base::Instant now);
  void account(Path& path, const Standing& before, std::uint32_t received, base::Instant now,
               FeedbackSample& sample);
  void judge(Path& path, base::Instant now);
  bool loses_more_than_others(const Path& path) const;
  void retire(Path& path, base::Instant now);
  void steer(Path& path, const spillway_path_report& report, bool is_marked, base::Instant now,
             FeedbackSample& sample);
  bool takes_turn(Path& path, base::Instant now);

  PathConfig config_;
  std::vector<Path> paths_;
  unsigned good_;
  unsigned next_ = 0;
  std::uint32_t control_draw_ = 1;
  std::int64_t in_flight_bytes_ = 0;
  base::Instant oldest_burst_;  // no burst with packets in flight began before
  base::Duration min_round_trip_ = base::seconds(3600);  // seen lately, on any path
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
    std::uint32_t bytes = 0;
    std::uint32_t timestamp_us = 0;
    bool marked = false;
    bool trimmed = false;
  };

  explicit PathIntake(std::uint64_t first_number = 0)
      : first_number_(first_number), sent_(first_number) {}

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
    path.report.bytes += arrival.bytes;
    path.report.marked += arrival.marked ? 1 : 0;
    path.report.trimmed += arrival.trimmed ? 1 : 0;
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

  // Packets sent over all paths, lost ones included, up to the latest that came over each; counted
  // from the first number.
  std::uint64_t sent() const { return sent_; }

  // Writes the reports of paths with news, as many as fit in one packet.
  void report(base::Instant now, wire::ControlPacket::Credit& credit) {
    credit.path_count = 0;
    while (news_ != 0 && credit.path_count < SPILLWAY_MAX_PATH_REPORTS) {
      const int index = std::countr_zero(news_);
      news_ &= news_ - 1;
      Path& path = paths_[static_cast<std::size_t>(index)];
      path.report.path = static_cast<std::uint8_t>(index);
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
    std::uint64_t newest = 0;  // highest packet number that came
    base::Instant latest;      // when it came
    std::uint64_t seen = 0;    // bit i: newest - i came
    bool has_come = false;     // anything over this path

    bool is_first(std::uint64_t number) const {
      return number > newest || (newest - number < 64 && (seen >> (newest - number) & 1) == 0);
    }
    void advance(std::uint64_t number) {
      seen = number - newest < 64 ? seen << (number - newest) : 0;
      newest = number;
    }
    void mark(std::uint64_t number) { seen |= std::uint64_t{1} << (newest - number); }
  };

  Path fresh_path() const {
    const auto low = static_cast<std::uint32_t>(first_number_);
    Path path;
    path.newest = first_number_;
    path.seen = ~std::uint64_t{0};
    path.report.packets = path.report.bytes = path.report.marked = path.report.trimmed = low;
    return path;
  }

  std::uint64_t first_number_;
  std::uint64_t sent_;
  std::vector<Path> paths_;
  std::uint64_t news_ = 0;  // bit per path
};

}  // namespace spillway::transport
