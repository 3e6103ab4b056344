// SPDX-License-Identifier: Apache-2.0
#include "transport/path_set.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "wire/data_packet.h"

namespace spillway::transport {
namespace {

// A path is judged once so many of its packets are accounted for...
constexpr std::uint32_t kJudgedPackets = 256;
// ...or at once, when so many in a row vanished.
constexpr std::uint32_t kSilentPackets = 16;
// It is gray when it loses more than this share, and this many times what the others lose.
constexpr double kGrayLoss = 0.005;
constexpr double kGrayFactor = 4.0;
// Totals are halved at this size, so that they describe the recent past.
constexpr double kTotalsMemory = 8192.0;
constexpr std::uint8_t kLongestSitOut = 4;
// Most packets that one report may bring news of.
constexpr std::uint64_t kMostNews = 1U << 20;

// Advances a counter to what a report's low bits say; returns by how much.
std::uint64_t take_count(std::uint32_t low, std::uint64_t& known) {
  const std::uint64_t now = std::max(wire::widen(low, known), known);
  const std::uint64_t news = now - known;
  known = now;
  return news;
}

}  // namespace

PathSet::PathSet(unsigned paths, const PathConfig& config)
    : config_(config), paths_(paths), good_(paths) {
  SPILLWAY_CHECK(paths >= 1 && paths <= kMaxPaths);
  for (Path& path : paths_) {
    path.retire_for = config.retire_first;
    path.sent = path.received = path.horizon = config.first_number;
    path.reported = path.marked = path.settled = config.first_number;
  }
}

PathSet::Standing PathSet::standing(const Path& path) {
  return {.in_flight = std::min(path.sent - path.received, path.sent - path.horizon),
          .lost = path.horizon - std::min(path.horizon, path.received)};
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
  // The loop ends: every look at a good path takes it, or brings its turn nearer.
  for (;;) {
    const unsigned candidate = next_;
    next_ = next_ + 1 == paths_.size() ? 0 : next_ + 1;
    if (takes_turn(paths_[candidate], now)) {
      begin_burst(paths_[candidate], now);
      return static_cast<std::uint8_t>(candidate);
    }
  }
}

// Chooses at random because control packets come in patterns: in turn, every BITMAP might meet the
// same bad path. Now and then it takes a retired path, which may be the only one that works by now.
std::uint8_t PathSet::choose_for_control() {
  control_draw_ = control_draw_ * 1664525 + 1013904223;  // Numerical Recipes' generator
  auto path = static_cast<std::uint32_t>(std::uint64_t{control_draw_} * paths_.size() >> 32);
  const bool takes_any = (control_draw_ >> 8 & 7) == 0;
  while (!takes_any && paths_[path].state != State::kGood) {
    path = path + 1 == paths_.size() ? 0 : path + 1;
  }
  return static_cast<std::uint8_t>(path);
}

std::uint8_t PathSet::worst() const {
  const auto worst = std::max_element(
      paths_.begin(), paths_.end(),
      [](const Path& a, const Path& b) { return standing(a).lost < standing(b).lost; });
  return static_cast<std::uint8_t>(worst - paths_.begin());
}

void PathSet::begin_burst(Path& path, base::Instant now) {
  // Bursts with nothing in flight are of no use.
  if (in_flight_ == 0) {
    oldest_burst_ = now;
  }
  if (path.sent == path.horizon) {
    path.first_burst = path.next_burst;
  } else if (path.next_burst - path.first_burst == kBursts) {
    ++path.first_burst;
  }
  path.bursts[path.next_burst++ % kBursts] = {.begun = now, .before = path.sent};
}

std::uint64_t PathSet::on_sent(std::uint8_t index, const SentPacket& what) {
  Path& path = paths_[index];
  path.remembered.resize(kRemembered);
  ++path.sent;
  path.remembered[path.sent % kRemembered] = what;
  ++in_flight_;
  return path.sent;
}

// The horizon moves to the latest packet that came.
std::uint64_t PathSet::horizon_at(const Path& path, const spillway_path_report& report) {
  const std::uint64_t latest = wire::widen(report.echo_number, path.sent);
  return std::max(path.horizon, std::min(latest, path.sent));
}

void PathSet::forget_bursts(Path& path, base::Instant begun_before) {
  while (path.next_burst != path.first_burst &&
         path.bursts[path.first_burst % kBursts].begun < begun_before) {
    ++path.first_burst;
  }
}

bool PathSet::on_report(const spillway_path_report& report, base::Instant now, PathNews& news) {
  if (report.path >= paths_.size()) {
    return false;
  }
  Path& path = paths_[report.path];
  const std::uint64_t reported = wire::widen(report.packets, path.reported);
  if (reported < path.reported) {
    return true;  // older than what is known
  }
  const Standing before = standing(path);
  // Limits the count to packets that are outstanding, whatever a peer says.
  const auto packets = static_cast<std::uint32_t>(
      std::min({reported - path.reported, path.sent - path.received, kMostNews}));
  const std::uint64_t marked = take_count(report.marked, path.marked);
  path.horizon = horizon_at(path, report);
  find_gaps(path, report, news);
  if (packets == 0) {
    account(path, before, 0, now, news);
    return true;
  }
  news.packets += packets;
  path.received += packets;
  path.reported = reported;
  path.silent_lost = 0;
  if (path.state == State::kTrial) {
    path.state = State::kGood;
    ++good_;
  }
  steer(path, report, marked * 2 > packets, now, news);
  account(path, before, packets, now, news);
  return true;
}

// From the latest packet back to those that were told before. An arrival counts for packets before
// it that are no less urgent.
void PathSet::find_gaps(Path& path, const spillway_path_report& report, PathNews& news) {
  const std::uint64_t latest = std::min(wire::widen(report.echo_number, path.sent), path.sent);
  std::array<unsigned, SPILLWAY_PRIORITIES> arrived{};  // of at most this priority
  const std::size_t first_gap = news.gaps.size();
  for (std::uint64_t back = 0; back < kRemembered && latest > path.settled + back; ++back) {
    if (path.sent - (latest - back) >= kRemembered) {
      break;  // forgotten
    }
    const SentPacket& what = path.remembered[(latest - back) % kRemembered];
    if ((report.usable >> back & 1) != 0) {
      for (std::size_t priority = what.priority; priority < arrived.size(); ++priority) {
        ++arrived[priority];
      }
      news.longest = std::max<std::uint32_t>(news.longest, what.bytes);
    } else if (arrived[what.priority] >= kReordered) {
      news.gaps.push_back(what);
    }
  }
  // In the order in which they were sent.
  std::reverse(news.gaps.begin() + static_cast<std::ptrdiff_t>(first_gap), news.gaps.end());
  if (latest > path.settled + kReordered) {
    path.settled = latest - kReordered;
  }
}

// A path that is slower or more marked than the best sits out a few turns.
void PathSet::steer(Path& path, const spillway_path_report& report, bool is_marked,
                    base::Instant now, PathNews& news) {
  // A report held for longer than timestamps reach says nothing about the round trip.
  const base::Duration round_trip = report.hold_us >= kStampReach
                                        ? base::Duration()
                                        : since_stamp(now, report.echo_us + report.hold_us);
  if (round_trip > base::Duration()) {
    news.round_trip = std::max(news.round_trip, round_trip);
    round_trip_.add(round_trip);
  }
  if (is_marked || round_trip > round_trip_.least() + config_.delay_target) {
    path.sit_out = std::min<std::uint8_t>(path.sit_out + 1, kLongestSitOut);
  }
}

void PathSet::expire(base::Instant sent_before, base::Instant now, PathNews& news) {
  if (oldest_burst_ >= sent_before) {
    return;
  }
  oldest_burst_ = now;
  for (Path& path : paths_) {
    if (path.next_burst == path.first_burst) {
      if (path.sent != path.horizon) {
        // A burst went on after its beginning was given up: its rest is timed from now on.
        path.bursts[path.next_burst++ % kBursts] = {.begun = now, .before = path.horizon};
      }
      continue;
    }
    const Standing before = standing(path);
    forget_bursts(path, sent_before);
    std::uint64_t horizon = path.sent;
    if (path.next_burst != path.first_burst) {
      const Burst& oldest = path.bursts[path.first_burst % kBursts];
      horizon = oldest.before;
      oldest_burst_ = std::min(oldest_burst_, oldest.begun);
    }
    if (horizon > path.horizon) {
      path.horizon = horizon;
      account(path, before, 0, now, news);
    }
  }
}

void PathSet::account(Path& path, const Standing& before, std::uint32_t received, base::Instant now,
                      PathNews& news) {
  const Standing after = standing(path);
  in_flight_ += after.in_flight - before.in_flight;  // wraps where it falls
  const auto lost = static_cast<std::uint32_t>(after.lost - std::min(after.lost, before.lost));
  news.lost += lost;
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

std::size_t PathSet::memory_bytes() const {
  std::size_t bytes = paths_.capacity() * sizeof(Path);
  for (const Path& path : paths_) {
    bytes += path.remembered.capacity() * sizeof(SentPacket);
  }
  return bytes;
}

}  // namespace spillway::transport
