// SPDX-License-Identifier: Apache-2.0
//
// The paths (UDP source ports) to one peer: which to send the next burst over, what is in flight,
// what was lost.
//
// Each path is a FIFO through the network, near enough. The receiver reports, per path, how many
// packets came and which was the latest; what was sent on the path before that one and did not come
// is lost. Packets still unreported a long time after they were sent are lost too. Both move a
// horizon forward, and nothing else is kept: reports may be lost, repeated or come late, and a
// packet that turns up after all is simply no longer lost.
//
//   good     takes its turn, but sits out rounds when its packets come marked or late: steering
//   retired  loses clearly more than the others (gray failure), or everything; sits out a while
//   trial    has one burst on its way to find out whether it works again
//
// The last good path is never retired. One thread; some 350 bytes per path, fixed.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "transport/congestion_control.h"
#include "wire/packet.h"

namespace spillway::transport {

struct PathTuning {
  base::Duration delay_target = base::microseconds(50);
  base::Duration retire_first = base::milliseconds(1);  // how long a bad path sits out at first
  base::Duration retire_longest = base::milliseconds(128);
};

class PathSet {
 public:
  static constexpr unsigned kMaxPaths = 64;

  PathSet(unsigned paths, const PathTuning& tuning);

  // The path for the next burst.
  std::uint8_t choose(base::Instant now);
  // Counts a packet; returns its path_sequence.
  std::uint8_t on_sent(std::uint8_t path, std::uint32_t bytes);

  // Takes a report in. What it adds goes to `sample`; false if there is no such path.
  bool on_report(const spillway_path_report& report, base::Instant now, FeedbackSample& sample);

  // Gives up packets sent before `sent_before`; what that adds goes to `sample`.
  void expire(base::Instant sent_before, base::Instant now, FeedbackSample& sample);

  // A path for a control packet, which is not counted: mostly a good one.
  std::uint8_t choose_for_control();

  std::int64_t in_flight_bytes() const { return in_flight_bytes_; }
  std::uint64_t retirements() const { return retirements_; }
  unsigned good_paths() const { return good_; }
  std::size_t memory_bytes() const { return paths_.capacity() * sizeof(Path); }
  bool is_good(std::uint8_t path) const { return paths_[path].state == State::kGood; }

 private:
  enum class State : std::uint8_t { kGood, kRetired, kTrial };

  struct Burst {
    std::uint32_t begun_us = 0;
    std::uint32_t before = 0;  // packets sent on the path before this burst
  };
  static constexpr std::uint32_t kBursts = 32;  // remembered per path

  // Packet counters run modulo 2^32, as in reports; differences from `sent` order them.
  struct Path {
    State state = State::kGood;
    std::uint8_t sit_out = 0;        // turns to skip
    std::uint32_t packet_bytes = 0;  // of the latest packet; those of one job are alike
    std::uint32_t sent = 0;
    std::uint32_t received = 0;
    std::uint32_t horizon = 0;   // packets sent before this one are received or lost
    std::uint32_t reported = 0;  // raw, as in the latest report: networks duplicate packets
    std::uint32_t reported_bytes = 0;
    std::uint32_t marked = 0;
    std::uint32_t trimmed = 0;
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
    std::uint32_t lost_packets;
  };

  static Standing standing(const Path& path);
  static std::uint32_t horizon_at(const Path& path, const spillway_path_report& report);
  static void forget_bursts(Path& path, std::uint32_t begun_before_us);
  void begin_burst(Path& path, base::Instant now);
  void account(Path& path, const Standing& before, std::uint32_t received, base::Instant now,
               FeedbackSample& sample);
  void judge(Path& path, base::Instant now);
  bool loses_more_than_others(const Path& path) const;
  void retire(Path& path, base::Instant now);
  void steer(Path& path, const spillway_path_report& report, bool is_marked, base::Instant now,
             FeedbackSample& sample);
  bool takes_turn(Path& path, base::Instant now);

  PathTuning tuning_;
  std::vector<Path> paths_;
  unsigned good_;
  unsigned next_ = 0;
  std::uint32_t control_draw_ = 1;
  std::int64_t in_flight_bytes_ = 0;
  std::uint32_t oldest_burst_us_ = 0;  // no burst with packets in flight began before
  base::Duration least_round_trip_ = base::seconds(3600);  // seen lately, on any path
  // Of all paths together, decayed: what a single path is compared with.
  double total_received_ = 0;
  double total_lost_ = 0;
  std::uint64_t retirements_ = 0;
};

}  // namespace spillway::transport
