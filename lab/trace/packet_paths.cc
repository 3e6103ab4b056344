// SPDX-License-Identifier: Apache-2.0
#include "lab/trace/packet_paths.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "switch/dataplane/frame.h"
#include "switch/dataplane/port.h"
#include "switch/dataplane/port_config.h"

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

// The paths of packets that look the same, and which of them is the next to be decided about and to
// arrive.
struct Alike {
  std::vector<std::size_t> paths;
  std::size_t decided = 0;
  std::size_t arrived = 0;
};

class Joiner {
 public:
  void add_left(const PacketCapture& capture) {
    add({.left = &capture}, key_of(capture.header, capture.to));
  }

  void add_decided(const spillway_event& event) {
    const Key key = key_of(event.header, event.port);
    Alike& alike = alike_[key];
    if (alike.decided < alike.paths.size()) {
      paths_[alike.paths[alike.decided]].decided = &event;
    } else {
      add({.decided = &event}, key);
    }
    ++alike.decided;
  }

  void add_arrived(const PacketCapture& capture) {
    const Key key = key_of(capture.header, capture.to);
    Alike& alike = alike_[key];
    while (alike.arrived < alike.paths.size() && paths_[alike.paths[alike.arrived]].is_dropped()) {
      ++alike.arrived;
    }
    if (alike.arrived < alike.paths.size()) {
      paths_[alike.paths[alike.arrived]].arrived = &capture;
    } else {
      add({.arrived = &capture}, key);
    }
    ++alike.arrived;
  }

  std::vector<PacketPath> take() { return std::move(paths_); }

 private:
  void add(const PacketPath& path, const Key& key) {
    alike_[key].paths.push_back(paths_.size());
    paths_.push_back(path);
  }

  std::vector<PacketPath> paths_;
  std::unordered_map<Key, Alike, KeyHash> alike_;
};

// Pointers to the elements that `is_wanted` accepts, sorted by time.
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

std::vector<const PacketCapture*> captures_in_order(const PacketLog& log, bool leaves) {
  return in_order(
      log.captures, [leaves](const PacketCapture& capture) { return capture.leaves == leaves; },
      [](const PacketCapture& capture) { return capture.at; });
}

// Compares departure and arrival, because no switch reported the packet.
PacketOutcome outcome_of_ends(const PacketPath& path) {
  if (path.arrived == nullptr) {
    return PacketOutcome::kLost;
  }
  if (path.left == nullptr) {
    return PacketOutcome::kUnseen;
  }
  if (path.arrived->bytes < path.left->bytes) {
    return PacketOutcome::kTrimmed;
  }
  const bool is_marked = path.arrived->ecn == SPILLWAY_ECN_CE && path.left->ecn != SPILLWAY_ECN_CE;
  return is_marked ? PacketOutcome::kMarked : PacketOutcome::kWhole;
}

}  // namespace

const spillway_packet_header& PacketPath::header() const {
  return left != nullptr ? left->header : decided != nullptr ? decided->header : arrived->header;
}

std::uint32_t PacketPath::to() const {
  return left != nullptr ? left->to : decided != nullptr ? decided->port : arrived->to;
}

base::Instant PacketPath::begin() const {
  return left != nullptr ? left->at : decided != nullptr ? time_of(*decided) : arrived->at;
}

std::optional<base::Instant> PacketPath::inside_from() const {
  if (decided != nullptr) {
    return left != nullptr ? std::max(time_of(*decided), left->at) : time_of(*decided);
  }
  return left != nullptr ? std::optional(left->at) : std::nullopt;
}

bool PacketPath::is_dropped() const {
  return decided != nullptr && (decided->bytes_left == 0 || decided->is_lost != 0);
}

base::Instant time_of(const spillway_event& event) {
  return base::Instant(base::nanoseconds(static_cast<std::int64_t>(event.time_ns)));
}

std::vector<PacketPath> join_paths(const PacketLog& log) {
  Joiner joiner;
  for (const PacketCapture* capture : captures_in_order(log, true)) {
    joiner.add_left(*capture);
  }
  const auto all = [](const spillway_event&) { return true; };
  for (const spillway_event* event : in_order(log.events, all, time_of)) {
    joiner.add_decided(*event);
  }
  for (const PacketCapture* capture : captures_in_order(log, false)) {
    joiner.add_arrived(*capture);
  }
  std::vector<PacketPath> paths = joiner.take();
  if (log.left_out > 0 && !log.hosts.empty()) {
    std::erase_if(paths, [](const PacketPath& path) { return path.left == nullptr; });
  }
  std::ranges::stable_sort(paths, {}, &PacketPath::begin);
  return paths;
}

PacketOutcome outcome_of(const PacketPath& path, const PacketLog& log) {
  if (path.decided == nullptr) {
    return outcome_of_ends(path);
  }
  const bool is_awaited = !log.hosts.empty() && path.decided->bytes_left > 0;
  if (path.decided->is_lost != 0 || (is_awaited && path.arrived == nullptr)) {
    return PacketOutcome::kLost;
  }
  return static_cast<PacketOutcome>(path.decided->reason % SPILLWAY_REASONS);
}

TraceSummary summarise_paths(const std::vector<PacketPath>& paths, const PacketLog& log) {
  TraceSummary summary;
  std::vector<base::Duration> times;
  for (const PacketPath& path : paths) {
    ++summary.packets[static_cast<std::size_t>(outcome_of(path, log))];
    summary.missed += !log.ports.empty() && path.decided == nullptr && path.arrived != nullptr;
    if (path.arrived != nullptr && path.inside_from()) {
      times.push_back(path.arrived->at - *path.inside_from());
    }
  }
  const base::DurationSummary durations = base::summarise(std::move(times));
  summary.median = durations.p50;
  summary.p99 = durations.p99;
  summary.left_out = log.left_out;
  summary.missed += log.missed;
  return summary;
}

std::string_view outcome_name(PacketOutcome outcome) {
  switch (outcome) {
    case PacketOutcome::kWhole:
      return "whole";
    case PacketOutcome::kLost:
      return "lost";
    case PacketOutcome::kUnseen:
      return "sent unseen";
    default:
      return dataplane::reason_name(static_cast<spillway_reason>(outcome));
  }
}

std::optional<PacketCapture> read_capture(base::MutableByteView frame, std::uint32_t bytes) {
  if (frame.empty()) {
    return std::nullopt;
  }
  const std::uint8_t* end = frame.data() + frame.size();
  spillway_layout layout = {};
  spillway_find_layout(frame.data(), end, &layout);
  const std::uint8_t* udp = spillway_udp_of(frame.data(), end, &layout);
  const std::uint32_t headers = layout.transport + SPILLWAY_UDP_HEADER;
  if (udp == nullptr ||
      headers + sizeof(spillway_packet_header) > std::min<std::size_t>(bytes, frame.size())) {
    return std::nullopt;
  }
  spillway_frame read = {};
  spillway_read_payload(udp + SPILLWAY_UDP_HEADER, end, bytes - headers, &read);
  if (read.flags == 0) {
    return std::nullopt;
  }
  PacketCapture capture;
  capture.bytes = bytes;
  capture.ecn = spillway_traffic_class(frame.data(), end, &layout) & 0x03;
  std::memcpy(&capture.header, udp + SPILLWAY_UDP_HEADER, sizeof(capture.header));
  return capture;
}

HardwareAddress receiver_of(base::ByteView frame) {
  HardwareAddress address;
  std::copy_n(frame.data(), address.size(), address.begin());
  return address;
}

}  // namespace spillway::lab
