// SPDX-License-Identifier: Apache-2.0
#include "transport/path_set.h"

#include <algorithm>

#include "base/check.h"
#include "transport/round_trip.h"

namespace spillway::transport {
namespace {

// A path is judged once so many of its packets are accounted for...
constexpr std::uint32_t kJudgedPackets = 256;
// ...or at once, when so many in a row vanished.
constexpr std::uint32_t kSilentPackets = 16;
// It is gray when it loses more than this, and this many times what the others lose.
constexpr double kGrayLoss = 0.005;
constexpr double kGrayFactor = 4.0;
// Totals are halved here, so that they describe the recent past.
constexpr double kTotalsMemory = 8192.0;
constexpr std::uint8_t kLongestSitOut = 4;
// The least round trip is forgotten by this much per report, in case routes change.
constexpr base::Duration kMinForgets = base::nanoseconds(100);

}  // namespace

PathSet::PathSet(unsigned paths, const PathConfig& config)
    : config_(config), paths_(paths), good_(paths) {
  SPILLWAY_CHECK(paths >= 1 && paths <= kMaxPaths);
  for (Path& path : paths_) {
    path.retire_for = config.retire_first;
  }
}

PathSet::Standing PathSet::standing(const Path& path) {
  const std::uint32_t in_flight = std::min(path.sent - path.received, path.sent - path.horizon);
  const auto lost = static_cast<std::int32_t>(path.horizon - path.received);
  return {.in_flight_bytes = std::int64_t{in_flight} * path.packet_bytes,
          .lost_packets = static_cast<std::uint32_t>(std::max(lost, 0))};
}

bool PathSet::takes_turn(Path& path, base::Instant now) {
  if (path.state == State::kRetired && now >= path.retired_until) {
    path.state = State::kTrial;
    return true;
  }
  if (path.state != State::kGood) {
    return false;
  }
  if (path.sit_out > 0) {
    --path.sit_out;
    return false;
  }
  return true;
}

std::uint8_t PathSet::choose(base::Instant now) {
  SPILLWAY_CHECK(good_ > 0);
  // Ends: every look at a good path takes it, or brings its turn nearer.
  for (;;) {
    const unsigned candidate = next_;
    next_ = next_ + 1 == paths_.size() ? 0 : next_ + 1;
    if (takes_turn(paths_[candidate], now)) {
      begin_burst(paths_[candidate], now);
      return static_cast<std::uint8_t>(candidate);
    }
  }
}

// At random, for control packets come in patterns: in turn, every BITMAP might meet the same bad
// path. Now and then over one that was retired: it may be the only one that works by now.
std::uint8_t PathSet::choose_for_control() {
  control_draw_ = control_draw_ * 1664525 + 1013904223;  // Numerical Recipes' generator
  auto path = static_cast<std::uint32_t>(std::uint64_t{control_draw_} * paths_.size() >> 32);
  const bool takes_any = (control_draw_ >> 8 & 7) == 0;
  while (!takes_any && paths_[path].state != State::kGood) {
    path = path + 1 == paths_.size() ? 0 : path + 1;
  }
  return static_cast<std::uint8_t>(path);
}

void PathSet::begin_burst(Path& path, base::Instant now) {
  // Bursts of which nothing is under way are of no use, and their stamps mean nothing when half
  // the clock's range has passed.
  if (in_flight_bytes_ == 0) {
    oldest_burst_us_ = stamp_us(now);
  }
  if (path.sent == path.horizon) {
    path.first_burst = path.next_burst;
  } else if (path.next_burst - path.first_burst == kBursts) {
    ++path.first_burst;
  }
  path.bursts[path.next_burst++ % kBursts] = {.begun_us = stamp_us(now), .before = path.sent};
}

std::uint8_t PathSet::on_sent(std::uint8_t index, std::uint32_t bytes) {
  Path& path = paths_[index];
  if (bytes != path.packet_bytes) {
    in_flight_bytes_ -= standing(path).in_flight_bytes;
    path.packet_bytes = bytes;
    in_flight_bytes_ += standing(path).in_flight_bytes;
  }
  ++path.sent;
  in_flight_bytes_ += bytes;
  return static_cast<std::uint8_t>(path.sent);
}

// Everything up to the latest packet that came. Its number is known modulo 256; that it was sent
// before the first burst begun after its timestamp tells which of the candidates it is.
std::uint32_t PathSet::horizon_at(const Path& path, const spillway_path_report& report) {
  std::uint32_t horizon = path.sent - static_cast<std::uint8_t>(path.sent - report.echo_sequence);
  for (std::uint32_t burst = path.first_burst; burst != path.next_burst; ++burst) {
    const Burst& candidate = path.bursts[burst % kBursts];
    if (is_before(report.echo_us, candidate.begun_us)) {
      while (static_cast<std::int32_t>(horizon - candidate.before) > 0) {
        horizon -= 256;
      }
      break;
    }
  }
  return static_cast<std::int32_t>(horizon - path.horizon) > 0 ? horizon : path.horizon;
}

void PathSet::forget_bursts(Path& path, std::uint32_t begun_before_us) {
  while (path.next_burst != path.first_burst &&
         is_before(path.bursts[path.first_burst % kBursts].begun_us, begun_before_us)) {
    ++path.first_burst;
  }
}

bool PathSet::on_report(const spillway_path_report& report, base::Instant now,
                        FeedbackSample& sample) {
  if (report.path >= paths_.size()) {
    return false;
  }
  Path& path = paths_[report.path];
  const auto news = static_cast<std::int32_t>(report.packets - path.reported);
  if (news <= 0) {
    return true;  // older than what is known
  }
  const Standing before = standing(path);
  const std::uint32_t packets = std::min<std::uint32_t>(news, path.sent - path.received);
  const std::uint32_t marked = std::min<std::uint32_t>(report.marked - path.marked, news);
  sample.acked_packets += packets;
  sample.acked_bytes += std::min<std::uint32_t>(report.bytes - path.reported_bytes,
                                                std::uint32_t{SPILLWAY_MAX_PACKET} * packets);
  sample.marked_packets += marked;
  sample.trimmed_packets += std::min<std::uint32_t>(report.trimmed - path.trimmed, news);
  path.received += packets;
  path.reported = report.packets;
  path.reported_bytes = report.bytes;
  path.marked = report.marked;
  path.trimmed = report.trimmed;
  path.horizon = horizon_at(path, report);
  path.silent_lost = 0;
  if (path.state == State::kTrial) {
    path.state = State::kGood;
    ++good_;
  }
  steer(path, report, marked * 2 > packets, now, sample);
  account(path, before, packets, now, sample);
  return true;
}

// A path that is slower or more marked than the best rests for a few turns.
void PathSet::steer(Path& path, const spillway_path_report& report, bool is_marked,
                    base::Instant now, FeedbackSample& sample) {
  // A report held so long that the field overflowed says nothing about the round trip.
  const base::Duration round_trip = report.hold_us == UINT16_MAX
                                        ? base::Duration()
                                        : since_stamp(now, report.echo_us + report.hold_us);
  if (round_trip > base::Duration()) {
    sample.round_trip = std::max(sample.round_trip, round_trip);
    min_round_trip_ = std::min(min_round_trip_ + kMinForgets, round_trip);
  }
  if (is_marked || round_trip > min_round_trip_ + config_.delay_target) {
    path.sit_out = std::min<std::uint8_t>(path.sit_out + 1, kLongestSitOut);
  }
}

void PathSet::expire(base::Instant sent_before, base::Instant now, FeedbackSample& sample) {
  const std::uint32_t limit_us = stamp_us(sent_before);
  if (!is_before(oldest_burst_us_, limit_us)) {
    return;
  }
  oldest_burst_us_ = stamp_us(now);
  for (Path& path : paths_) {
    if (path.next_burst == path.first_burst) {
      if (path.sent != path.horizon) {
        // A burst that went on after its beginning was given up: the rest is counted from now on.
        path.bursts[path.next_burst++ % kBursts] = {.begun_us = stamp_us(now),
                                                    .before = path.horizon};
      }
      continue;
    }
    const Standing before = standing(path);
    forget_bursts(path, limit_us);
    std::uint32_t horizon = path.sent;
    if (path.next_burst != path.first_burst) {
      const Burst& oldest = path.bursts[path.first_burst % kBursts];
      horizon = oldest.before;
      if (is_before(oldest.begun_us, oldest_burst_us_)) {
        oldest_burst_us_ = oldest.begun_us;
      }
    }
    if (static_cast<std::int32_t>(horizon - path.horizon) > 0) {
      path.horizon = horizon;
      account(path, before, 0, now, sample);
    }
  }
}

void PathSet::account(Path& path, const Standing& before, std::uint32_t received, base::Instant now,
                      FeedbackSample& sample) {
  const Standing after = standing(path);
  in_flight_bytes_ += after.in_flight_bytes - before.in_flight_bytes;
  const std::uint32_t lost = after.lost_packets - std::min(after.lost_packets, before.lost_packets);
  sample.lost_packets += lost;
  path.judged_received += received;
  path.judged_lost += lost;
  path.silent_lost += lost;
  total_received_ += received;
  total_lost_ += lost;
  if (total_received_ + total_lost_ > kTotalsMemory) {
    total_received_ /= 2;
    total_lost_ /= 2;
  }
  judge(path, now);
}

bool PathSet::loses_more_than_others(const Path& path) const {
  const double others_received = std::max(total_received_ - path.judged_received, 0.0);
  const double others_lost = std::max(total_lost_ - path.judged_lost, 0.0);
  const double others = others_lost / std::max(others_received + others_lost, 1.0);
  const double own =
      path.judged_lost / std::max<double>(path.judged_received + path.judged_lost, 1.0);
  return own > std::max(kGrayLoss, kGrayFactor * others);
}

void PathSet::judge(Path& path, base::Instant now) {
  const bool is_silent =
      path.silent_lost >= kSilentPackets || (path.state == State::kTrial && path.silent_lost > 0);
  const bool is_seasoned = path.judged_received + path.judged_lost >= kJudgedPackets;
  if (!is_silent && !is_seasoned) {
    return;
  }
  const bool is_bad = loses_more_than_others(path);
  path.judged_received = 0;
  path.judged_lost = 0;
  if (is_bad) {
    retire(path, now);
  } else if (is_seasoned) {
    path.retire_for = config_.retire_first;
  }
}

void PathSet::retire(Path& path, base::Instant now) {
  if (path.state == State::kGood) {
    if (good_ == 1) {
      return;
    }
    --good_;
  }
  path.state = State::kRetired;
  path.silent_lost = 0;
  path.retired_until = now + path.retire_for;
  path.retire_for = std::min(path.retire_for * 2, config_.retire_longest);
  ++retirements_;
}

}  // namespace spillway::transport
