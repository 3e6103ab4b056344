// SPDX-License-Identifier: Apache-2.0
#include "sim/drill/drill_net.h"

#include <algorithm>

namespace spillway::sim {

DrillNet::DrillNet(std::size_t processes, Delays delays, std::uint64_t seed)
    : processes_(processes),
      delays_(delays),
      random_(seed),
      links_(processes * processes),
      last_arrival_(processes * processes) {}

void DrillNet::connect(ProcessIndex a, ProcessIndex b) {
  Link& of = link(a, b);
  of.is_open = true;
  ++of.connection;
}

void DrillNet::disconnect(ProcessIndex a, ProcessIndex b) {
  link(a, b).is_open = false;
  held_.erase(at(a, b));
  held_.erase(at(b, a));
}

base::Duration DrillNet::draw_delay() {
  const auto range = static_cast<std::uint64_t>((delays_.most - delays_.least).count());
  return delays_.least + base::Duration(static_cast<std::int64_t>(random_.next_below(range + 1)));
}

std::optional<base::Instant> DrillNet::send(DrillPacket& packet, base::Instant now) {
  const Link& of = link(packet.from, packet.to);
  if (!of.is_open) {
    return std::nullopt;
  }
  packet.connection = of.connection;
  base::Instant& last = last_arrival_[at(packet.from, packet.to)];
  last = std::max(last + base::nanoseconds(1), now + draw_delay());
  return last;
}

bool DrillNet::arrives(DrillPacket& packet) {
  const Link& of = link(packet.from, packet.to);
  if (!of.is_open || of.connection != packet.connection) {
    return false;
  }
  const std::size_t direction = at(packet.from, packet.to);
  if (is_cut(packet.from, packet.to) || held_.contains(direction)) {
    held_[direction].push_back(std::move(packet));
    return false;
  }
  return true;
}

std::size_t DrillNet::cut(std::vector<bool> part, std::vector<bool> other) {
  cuts_.push_back({.part = std::move(part), .other = std::move(other)});
  return cuts_.size() - 1;
}

std::vector<DrillPacket> DrillNet::heal(std::size_t cut) {
  cuts_[cut].is_on = false;
  std::vector<DrillPacket> released;
  std::erase_if(held_, [&](auto& held) {
    const ProcessIndex from = static_cast<ProcessIndex>(held.first / processes_);
    const ProcessIndex to = static_cast<ProcessIndex>(held.first % processes_);
    if (is_cut(from, to)) {
      return false;
    }
    std::ranges::move(held.second, std::back_inserter(released));
    return true;
  });
  return released;
}

bool DrillNet::is_cut(ProcessIndex a, ProcessIndex b) const {
  return std::ranges::any_of(cuts_,
                             [a, b](const Cut& cut) { return cut.is_on && cut.parts(a, b); });
}

std::vector<std::pair<ProcessIndex, ProcessIndex>> DrillNet::pairs_of(std::size_t cut) const {
  std::vector<std::pair<ProcessIndex, ProcessIndex>> pairs;
  for (ProcessIndex a = 0; a < processes_; ++a) {
    for (ProcessIndex b = a + 1; b < processes_; ++b) {
      if (cuts_[cut].parts(a, b)) {
        pairs.emplace_back(a, b);
      }
    }
  }
  return pairs;
}

}  // namespace spillway::sim
