// SPDX-License-Identifier: Apache-2.0
#include "lab/packet_ways.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "dataplane/port.h"
#include "sim/results.h"

namespace spillway::lab {
namespace {

// A packet's header and the host it is for.
using Key = std::array<char, sizeof(spillway_packet_header) + sizeof(std::uint32_t)>;

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    return std::hash<std::string_view>()({key.data(), key.size()});
  }
};

Key key_of(const spillway_packet_header& header, std::uint32_t to) {
  Key key;
  std::memcpy(key.data(), &header, sizeof(header));
  std::memcpy(key.data() + sizeof(header), &to, sizeof(to));
  return key;
}

// The ways of packets that look the same, and how far each kind of sight has come in them.
struct Alike {
  std::vector<std::size_t> ways;
  std::size_t decided = 0;
  std::size_t arrived = 0;
};

class Joiner {
 public:
  void add_left(const PacketSight& sight) { add({.left = &sight}, key_of(sight.header, sight.to)); }

  void add_decided(const spillway_event& event) {
    const Key key = key_of(event.header, event.port);
    Alike& alike = alike_[key];
    if (alike.decided < alike.ways.size()) {
      ways_[alike.ways[alike.decided]].decided = &event;
    } else {
      add({.decided = &event}, key);
    }
    ++alike.decided;
  }

  void add_arrived(const PacketSight& sight) {
    const Key key = key_of(sight.header, sight.to);
    Alike& alike = alike_[key];
    while (alike.arrived < alike.ways.size() && ways_[alike.ways[alike.arrived]].is_dropped()) {
      ++alike.arrived;
    }
    if (alike.arrived < alike.ways.size()) {
      ways_[alike.ways[alike.arrived]].arrived = &sight;
    } else {
      add({.arrived = &sight}, key);
    }
    ++alike.arrived;
  }

  std::vector<PacketWay> take() { return std::move(ways_); }

 private:
  void add(const PacketWay& way, const Key& key) {
    alike_[key].ways.push_back(ways_.size());
    ways_.push_back(way);
  }

  std::vector<PacketWay> ways_;
  std::unordered_map<Key, Alike, KeyHash> alike_;
};

// Pointers to those that `is_wanted`, by time.
template <typename Seen, typename IsWanted, typename TimeOf>
std::vector<const Seen*> in_order(const std::vector<Seen>& all, IsWanted is_wanted,
                                  TimeOf time_of_one) {
  std::vector<const Seen*> wanted;
  for (const Seen& one : all) {
    if (is_wanted(one)) {
      wanted.push_back(&one);
    }
  }
  std::ranges::stable_sort(wanted, {}, [&](const Seen* one) { return time_of_one(*one); });
  return wanted;
}

std::vector<const PacketSight*> sights_in_order(const PacketLog& log, bool leaves) {
  return in_order(
      log.sights, [leaves](const PacketSight& sight) { return sight.leaves == leaves; },
      [](const PacketSight& sight) { return sight.at; });
}

// By comparing the ends, where no switch tells.
PacketOutcome outcome_of_ends(const PacketWay& way) {
  if (way.arrived == nullptr) {
    return PacketOutcome::kLost;
  }
  if (way.left == nullptr) {
    return PacketOutcome::kUnseen;
  }
  if (way.arrived->bytes < way.left->bytes) {
    return PacketOutcome::kTrimmed;
  }
  const bool is_marked = way.arrived->ecn == SPILLWAY_ECN_CE && way.left->ecn != SPILLWAY_ECN_CE;
  return is_marked ? PacketOutcome::kMarked : PacketOutcome::kWhole;
}

}  // namespace

const spillway_packet_header& PacketWay::header() const {
  return left != nullptr ? left->header : decided != nullptr ? decided->header : arrived->header;
}

std::uint32_t PacketWay::to() const {
  return left != nullptr ? left->to : decided != nullptr ? decided->port : arrived->to;
}

base::Instant PacketWay::begin() const {
  return left != nullptr ? left->at : decided != nullptr ? time_of(*decided) : arrived->at;
}

std::optional<base::Instant> PacketWay::inside_from() const {
  if (decided != nullptr) {
    return left != nullptr ? std::max(time_of(*decided), left->at) : time_of(*decided);
  }
  return left != nullptr ? std::optional(left->at) : std::nullopt;
}

bool PacketWay::is_dropped() const {
  return decided != nullptr && (decided->bytes_left == 0 || decided->is_lost != 0);
}

base::Instant time_of(const spillway_event& event) {
  return base::Instant(base::nanoseconds(static_cast<std::int64_t>(event.time_ns)));
}

std::vector<PacketWay> join_ways(const PacketLog& log) {
  Joiner joiner;
  for (const PacketSight* sight : sights_in_order(log, true)) {
    joiner.add_left(*sight);
  }
  const auto all = [](const spillway_event&) { return true; };
  for (const spillway_event* event : in_order(log.events, all, time_of)) {
    joiner.add_decided(*event);
  }
  for (const PacketSight* sight : sights_in_order(log, false)) {
    joiner.add_arrived(*sight);
  }
  std::vector<PacketWay> ways = joiner.take();
  if (log.left_out > 0 && !log.hosts.empty()) {
    std::erase_if(ways, [](const PacketWay& way) { return way.left == nullptr; });
  }
  std::ranges::stable_sort(ways, {}, &PacketWay::begin);
  return ways;
}

PacketOutcome outcome_of(const PacketWay& way, const PacketLog& log) {
  if (way.decided == nullptr) {
    return outcome_of_ends(way);
  }
  const bool is_awaited = !log.hosts.empty() && way.decided->bytes_left > 0;
  if (way.decided->is_lost != 0 || (is_awaited && way.arrived == nullptr)) {
    return PacketOutcome::kLost;
  }
  return static_cast<PacketOutcome>(way.decided->reason % SPILLWAY_REASONS);
}

TraceSummary summarise_ways(const std::vector<PacketWay>& ways, const PacketLog& log) {
  TraceSummary summary;
  std::vector<base::Duration> times;
  for (const PacketWay& way : ways) {
    ++summary.packets[static_cast<std::size_t>(outcome_of(way, log))];
    summary.missed += !log.ports.empty() && way.decided == nullptr && way.arrived != nullptr;
    if (way.arrived != nullptr && way.inside_from()) {
      times.push_back(way.arrived->at - *way.inside_from());
    }
  }
  const sim::DurationSummary durations = sim::summarise(std::move(times));
  summary.median = durations.p50;
  summary.p99 = durations.p99;
  summary.left_out = log.left_out;
  summary.missed += log.missed;
  return summary;
}

}  // namespace spillway::lab
