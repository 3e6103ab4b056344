// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/flow_durations.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::emulate {
namespace {

constexpr base::Duration kLongestTransfer = base::seconds(1'000'000);

World empty_world(std::uint32_t size) {
  World world;
  world.ranks.resize(size);
  world.has_trace.resize(size, false);
  return world;
}

}  // namespace

std::vector<std::vector<std::uint32_t>> sister_groups(const std::vector<std::uint32_t>& ranks,
                                                      std::uint32_t world) {
  const auto size = static_cast<std::uint32_t>(ranks.size());
  const std::uint32_t stride = stride_of(ranks);
  if (stride == 0) {
    return {ranks};
  }
  const std::uint64_t block = std::uint64_t{stride} * size;
  // The pattern must begin where a division of the world has one of its groups.
  if (world % block != 0 || ranks[0] % block >= stride) {
    return {ranks};
  }
  std::vector<std::vector<std::uint32_t>> sisters = {ranks};
  for (std::uint32_t start = 0; start < world; start += static_cast<std::uint32_t>(block)) {
    for (std::uint32_t offset = 0; offset < stride; ++offset) {
      if (start + offset == ranks[0]) {
        continue;
      }
      std::vector<std::uint32_t>& made = sisters.emplace_back();
      for (std::uint32_t i = 0; i < size; ++i) {
        made.push_back(start + offset + i * stride);
      }
    }
  }
  return sisters;
}

FlowDurations::FlowDurations(std::uint32_t world, FabricPaths paths,
                             const FlowModelOptions& options)
    : world_(empty_world(world)), paths_(std::move(paths)), model_(world_, paths_, options) {}

const FlowDurations::Division& FlowDurations::division_of(const std::vector<std::uint32_t>& ranks) {
  const auto [at, is_new] = divisions_.try_emplace(ranks);
  if (is_new) {
    std::vector<std::vector<std::uint32_t>> sisters = sister_groups(ranks, world_.size());
    at->second = {static_cast<std::uint32_t>(world_.groups.size()),
                  static_cast<std::uint32_t>(sisters.size())};
    for (std::vector<std::uint32_t>& sister : sisters) {
      world_.groups.push_back({fmt::format("{}", world_.groups.size()), std::move(sister)});
    }
  }
  return at->second;
}

base::Result<base::Duration> FlowDurations::collective(const StagedCollective& collective) {
  const Division division = division_of(collective.ranks);
  const Key key{division.first, collective.kind, collective.root, collective.bytes};
  if (const auto found = remembered_.find(key); found != remembered_.end()) {
    return found->second;
  }
  const auto place = static_cast<std::size_t>(
      std::lower_bound(collective.ranks.begin(), collective.ranks.end(), collective.root) -
      collective.ranks.begin());
  std::vector<Transfer> transfers(division.count);
  for (std::uint32_t i = 0; i < division.count; ++i) {
    const std::vector<std::uint32_t>& ranks = world_.groups[division.first + i].ranks;
    transfers[i].meeting = i;
    transfers[i].collective = collective.kind;
    transfers[i].group = division.first + i;
    transfers[i].root = ranks[std::min(place, ranks.size() - 1)];
    transfers[i].bytes = collective.bytes;
  }
  const base::Result<base::Duration> took = run(transfers);
  if (took.ok() && remembered_.size() < kMaxRemembered) {
    remembered_.emplace(key, *took);
  }
  return took;
}

base::Result<base::Duration> FlowDurations::message(std::uint32_t from, std::uint32_t to,
                                                    std::uint64_t bytes) {
  Transfer transfer;
  transfer.is_message = true;
  transfer.from = from;
  transfer.to = to;
  transfer.bytes = bytes;
  return run({transfer});
}

// Runs all at once from now until none is open; returns the first one's duration.
base::Result<base::Duration> FlowDurations::run(const std::vector<Transfer>& transfers) {
  const base::Instant began = now_;
  base::Status failed;
  for (const Transfer& transfer : transfers) {
    if (failed = model_.begin(transfer, began); !failed.ok()) {
      break;
    }
  }
  base::Duration first{};
  std::vector<MeetingIndex> ended;
  while (model_.has_open()) {
    ended.clear();
    now_ = model_.advance(began + kLongestTransfer, ended);
    if (std::find(ended.begin(), ended.end(), transfers.front().meeting) != ended.end()) {
      first = now_ - began;
    }
    if (ended.empty()) {
      return base::Status(base::StatusCode::kLimitExceeded,
                          "a transfer of more than 11 days: see the network's rates");
    }
  }
  if (!failed.ok()) {
    return failed;
  }
  return first;
}

}  // namespace spillway::emulate
