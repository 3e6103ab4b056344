// SPDX-License-Identifier: Apache-2.0
#include "lab/watch/lab_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <utility>

namespace spillway::lab {
namespace {

std::vector<PortLook> port_looks(const fabric::FabricSnapshot& fabric) {
  std::vector<PortLook> looks;
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

LabWatch::LabWatch(const scenario::Topology& topology, const RankBoards& boards, Look look)
    : boards_(boards),
      look_(std::move(look)),
      account_(link_rates(topology, look_()), boards.read().size(), kLookEvery),
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
    look();
  }
  return account_.report();
}

void LabWatch::work() {
  std::unique_lock lock(mutex_);
  do {
    look();
  } while (!ending_.wait_for(lock, std::chrono::nanoseconds(kLookEvery.count()),
                             [this] { return ends_; }));
}

void LabWatch::look() {
  const fabric::FabricSnapshot fabric = look_();
  account_.look(fabric.taken, port_looks(fabric), boards_.read());
}

}  // namespace spillway::lab
