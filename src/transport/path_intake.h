// SPDX-License-Identifier: Apache-2.0
//
// What came over each path from one peer, counted since the peer joined: the receiver's half of
// path scoring. Reports carry the counts of paths that have news; nothing is lost with a lost
// report.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "transport/path_set.h"
#include "transport/time_stamp.h"
#include "wire/control_packet.h"

namespace spillway::transport {

class PathIntake {
 public:
  struct Arrival {
    std::uint8_t path = 0;  // < PathSet::kMaxPaths
    std::uint8_t path_sequence = 0;
    std::uint32_t bytes = 0;
    std::uint32_t timestamp_us = 0;
    bool marked = false;
    bool trimmed = false;
  };

  void add(const Arrival& arrival, base::Instant now) {
    if (arrival.path >= paths_.size()) {
      paths_.resize(arrival.path + 1U);
    }
    Path& path = paths_[arrival.path];
    ++path.report.packets;
    path.report.bytes += arrival.bytes;
    path.report.marked += arrival.marked ? 1 : 0;
    path.report.trimmed += arrival.trimmed ? 1 : 0;
    if (path.report.packets == 1 || is_later(arrival, path.report)) {
      path.report.echo_us = arrival.timestamp_us;
      path.report.echo_sequence = arrival.path_sequence;
      path.latest = now;
    }
    news_ |= std::uint64_t{1} << arrival.path;
  }

  // Writes the reports of paths with news, as many as fit one packet.
  void report(base::Instant now, wire::ControlPacket::Credit& credit) {
    credit.path_count = 0;
    while (news_ != 0 && credit.path_count < SPILLWAY_MAX_PATH_REPORTS) {
      const int index = std::countr_zero(news_);
      news_ &= news_ - 1;
      Path& path = paths_[static_cast<std::size_t>(index)];
      path.report.path = static_cast<std::uint8_t>(index);
      const std::int64_t hold_us = (now - path.latest).count() / 1000;
      path.report.hold_us = static_cast<std::uint16_t>(std::min<std::int64_t>(hold_us, UINT16_MAX));
      credit.paths[credit.path_count++] = path.report;
    }
  }

  // The next report tells of every path again.
  void refresh() {
    for (std::size_t index = 0; index < paths_.size(); ++index) {
      news_ |= paths_[index].report.packets > 0 ? std::uint64_t{1} << index : 0;
    }
  }

 private:
  struct Path {
    spillway_path_report report{};
    base::Instant latest;
  };

  // Packets of one microsecond are told apart by their sequence.
  static bool is_later(const Arrival& arrival, const spillway_path_report& report) {
    return is_before(report.echo_us, arrival.timestamp_us) ||
           (report.echo_us == arrival.timestamp_us &&
            static_cast<std::int8_t>(arrival.path_sequence - report.echo_sequence) > 0);
  }

  std::vector<Path> paths_;
  std::uint64_t news_ = 0;  // bit per path
};

}  // namespace spillway::transport
