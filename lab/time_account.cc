// SPDX-License-Identifier: Apache-2.0
#include "lab/time_account.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <utility>

#include "wire/packet.h"

namespace spillway::lab {

namespace {

base::Duration share_of(base::Duration duration, double share) {
  return base::nanoseconds(
      static_cast<std::int64_t>(static_cast<double>(duration.count()) * share));
}

// Counters only grow, but the ranks' boards are not trusted.
std::uint64_t grown(std::uint64_t now, std::uint64_t before) {
  return now > before ? now - before : 0;
}

std::uint64_t looks_of(const net::WaitCounts& counts) {
  return std::accumulate(counts.looks.begin(), counts.looks.end(), std::uint64_t{0});
}

bool has_counted(const net::WaitCounts& counts) {
  return counts.under_way > 0 || counts.sent_bytes > 0 || looks_of(counts) > 0;
}

double wire_bytes(const PortSample& now, const PortSample& before) {
  return static_cast<double>(grown(now.bytes, before.bytes)) +
         static_cast<double>(grown(now.packets, before.packets)) * SPILLWAY_WIRE_OVERHEAD;
}

}  // namespace

std::string_view time_part_name(std::size_t part) {
  return part == kCallerPart ? "the caller" : net::wait_name(static_cast<net::Wait>(part));
}

TimeAccount::TimeAccount(std::vector<LinkRate> links, std::size_t ranks, base::Duration first_bin)
    : rates_(std::move(links)),
      links_(rates_.size()),
      ports_(rates_.size()),
      ranks_(ranks),
      bin_(first_bin) {}

void TimeAccount::add_sample(base::Instant at, std::span<const PortSample> ports,
                             std::span<const net::WaitCounts> ranks) {
  if (ports.size() != ports_.size() || ranks.size() != ranks_.size()) {
    return;  // samples of another network
  }
  if (has_begun_ && at <= last_) {
    return;  // nothing new
  }
  if (has_begun_) {
    const base::Duration length = at - last_;
    const Parts parts = parts_of(ranks);
    const bool is_under_way =
        std::accumulate(parts.begin(), parts.end(), 0.0) - parts[kCallerPart] > 0.0;
    under_way_ += is_under_way ? length : base::Duration();
    widen_bins(at);
    for (std::size_t i = 0; i < links_.size(); ++i) {
      carry(links_[i], i, ports[i], at, parts, is_under_way);
    }
  } else {
    begin_ = at;
    has_begun_ = true;
  }
  last_ = at;
  std::ranges::copy(ports, ports_.begin());
  std::ranges::copy(ranks, ranks_.begin());
}

TimeAccount::Parts TimeAccount::parts_of(std::span<const net::WaitCounts> ranks) const {
  Parts parts{};
  std::size_t taking_part = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const net::WaitCounts& now = ranks[rank];
    const net::WaitCounts& before = ranks_[rank];
    if (!has_counted(now)) {
      continue;
    }
    ++taking_part;
    std::array<double, net::kWaits> looks{};
    for (std::size_t i = 0; i < net::kWaits; ++i) {
      looks[i] = static_cast<double>(grown(now.looks[i], before.looks[i]));
    }
    const double all = std::accumulate(looks.begin(), looks.end(), 0.0);
    if (all > 0.0) {
      for (std::size_t i = 0; i < net::kWaits; ++i) {
        parts[i] += looks[i] / all;
      }
    } else if (now.under_way > 0 && before.under_way > 0) {
      parts[static_cast<std::size_t>(net::Wait::kComputing)] += 1.0;
    } else {
      parts[kCallerPart] += 1.0;
    }
  }
  for (double& part : parts) {
    part /= static_cast<double>(std::max<std::size_t>(taking_part, 1));
  }
  return parts;
}

// Ports count a frame when they decide about it, which is before its link carries it. So the bytes
// of a backlog are spread over the following intervals.
void TimeAccount::carry(Link& link, std::size_t index, const PortSample& port, base::Instant at,
                        const Parts& parts, bool is_under_way) {
  const base::Duration length = at - last_;
  const double room =
      static_cast<double>(rates_[index].rate.count()) / 8.0 * base::seconds_of(length);
  link.waiting_bytes += wire_bytes(port, ports_[index]);
  const double carried = std::min(link.waiting_bytes, room);
  link.waiting_bytes -= carried;
  link.carried_bytes += carried;
  add_to_bins(link, carried, at);
  const double use = room > 0.0 ? carried / room : 0.0;
  if (!is_under_way) {
    note_gap(link, 1.0, length);  // no operation is under way: no gap
    return;
  }
  note_gap(link, use, length);
  const base::Duration idle = share_of(length, 1.0 - use);
  link.idle += idle;
  for (std::size_t i = 0; i < kTimeParts; ++i) {
    link.idle_by_part[i] += share_of(idle, parts[i]);
  }
}

void TimeAccount::note_gap(Link& link, double use, base::Duration length) {
  if (use >= kGapUse) {
    link.gap = base::Duration();
    return;
  }
  link.gaps += link.gap == base::Duration() ? 1 : 0;
  link.gap += length;
  link.gaps_total += length;
  link.longest_gap = std::max(link.longest_gap, link.gap);
}

// The time of each byte within the interval is unknown, so the bins share the bytes in proportion.
void TimeAccount::add_to_bins(Link& link, double bytes, base::Instant at) const {
  const std::int64_t bin = bin_.count();
  const std::int64_t begin = (last_ - begin_).count();
  const std::int64_t end = (at - begin_).count();
  const double bytes_per_ns = bytes / static_cast<double>(end - begin);
  link.bins.resize(static_cast<std::size_t>((end + bin - 1) / bin));
  for (std::int64_t i = begin / bin; i * bin < end; ++i) {
    const std::int64_t covered = std::min(end, (i + 1) * bin) - std::max(begin, i * bin);
    link.bins[static_cast<std::size_t>(i)] += bytes_per_ns * static_cast<double>(covered);
  }
}

void TimeAccount::widen_bins(base::Instant at) {
  while (at - begin_ > bin_ * static_cast<std::int64_t>(kMaxBins)) {
    for (Link& link : links_) {
      for (std::size_t i = 0; i < link.bins.size(); ++i) {
        const double bytes = std::exchange(link.bins[i], 0.0);
        link.bins[i / 2] += bytes;
      }
      link.bins.resize((link.bins.size() + 1) / 2);
    }
    bin_ = bin_ * 2;
  }
}

TimeReport TimeAccount::report() const {
  TimeReport report;
  report.elapsed = last_ - begin_;
  for (const net::WaitCounts& rank : ranks_) {
    report.knows_operations |= has_counted(rank);
    report.sent_bytes += rank.sent_bytes;
    report.resent_bytes += rank.resent_bytes;
    report.wasted_bytes += rank.wasted_bytes;
  }
  const auto share_used = [this](const Link& link) {
    const auto index = static_cast<std::size_t>(&link - links_.data());
    return link.carried_bytes /
           static_cast<double>(std::max<std::int64_t>(rates_[index].rate.count(), 1));
  };
  const auto busiest = std::ranges::max_element(links_, {}, share_used);
  if (busiest == links_.end() || busiest->carried_bytes <= 0.0) {
    return report;
  }
  const LinkRate& rate = rates_[static_cast<std::size_t>(busiest - links_.begin())];
  const double bytes_per_second = static_cast<double>(rate.rate.count()) / 8.0;
  report.link = rate.name;
  report.rate = rate.rate;
  report.use = busiest->carried_bytes / (bytes_per_second * base::seconds_of(report.elapsed));
  report.bin = bin_;
  for (std::size_t i = 0; i < busiest->bins.size(); ++i) {
    const base::Duration length =
        std::min(bin_, report.elapsed - bin_ * static_cast<std::int64_t>(i));
    report.use_over_time.push_back(
        std::min(1.0, busiest->bins[i] / (bytes_per_second * base::seconds_of(length))));
  }
  report.under_way = under_way_;
  report.idle = busiest->idle;
  report.idle_by_part = busiest->idle_by_part;
  report.gaps = busiest->gaps;
  report.gaps_total = busiest->gaps_total;
  report.longest_gap = busiest->longest_gap;
  return report;
}

// ------------------------------------------------------------------ taking samples

namespace {

std::vector<PortSample> port_samples(const fabric::FabricSnapshot& fabric) {
  std::vector<PortSample> looks;
  for (const fabric::PortSnapshot& port : fabric.ports) {
    looks.push_back({.bytes = port.sent_bytes, .packets = port.sent_packets});
  }
  return looks;
}

}  // namespace

RankBoards::RankBoards(const std::filesystem::path& folder, std::size_t ranks) {
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::string path = folder / fmt::format("waits.{}", rank);
    base::Result<net::WaitBoard> board = net::WaitBoard::make(path);
    if (!board.ok()) {
      return;
    }
    paths_.push_back(path);
    boards_.push_back(std::move(board).value());
  }
}

std::vector<std::string> RankBoards::variables(std::size_t rank) const {
  return rank < paths_.size()
             ? std::vector<std::string>{fmt::format("SPILLWAY_WAITS={}", paths_[rank])}
             : std::vector<std::string>();
}

std::vector<net::WaitCounts> RankBoards::read() const {
  std::vector<net::WaitCounts> counts;
  for (const net::WaitBoard& board : boards_) {
    counts.push_back(board.read());
  }
  return counts;
}

std::vector<LinkRate> link_rates(const scenario::Topology& topology,
                                 const fabric::FabricSnapshot& fabric) {
  std::map<std::string, base::BitRate, std::less<>> rates;
  for (const scenario::Link& link : topology.links) {
    const std::string& a = topology.node_name(link.a);
    const std::string& b = topology.node_name(link.b);
    rates.emplace(fmt::format("{}->{}", a, b), link.rate);
    rates.emplace(fmt::format("{}->{}", b, a), link.rate);
  }
  std::vector<LinkRate> links;
  for (const fabric::PortSnapshot& port : fabric.ports) {
    const auto found = rates.find(std::string_view(port.name).substr(0, port.name.find('#')));
    links.push_back({port.name, found == rates.end() ? base::BitRate() : found->second});
  }
  return links;
}

LabWatch::LabWatch(const scenario::Topology& topology, const RankBoards& boards,
                   TakeSnapshot take_snapshot)
    : boards_(boards),
      take_snapshot_(std::move(take_snapshot)),
      account_(link_rates(topology, take_snapshot_()), boards.read().size(), kWatchInterval),
      thread_([this] { work(); }) {}

LabWatch::~LabWatch() {
  (void)finish();
}

TimeReport LabWatch::finish() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    ending_.notify_one();
    thread_.join();
    sample();
  }
  return account_.report();
}

void LabWatch::work() {
  std::unique_lock lock(mutex_);
  do {
    sample();
  } while (!ending_.wait_for(lock, std::chrono::nanoseconds(kWatchInterval.count()),
                             [this] { return ends_; }));
}

void LabWatch::sample() {
  const fabric::FabricSnapshot fabric = take_snapshot_();
  account_.add_sample(fabric.taken, port_samples(fabric), boards_.read());
}

}  // namespace spillway::lab
