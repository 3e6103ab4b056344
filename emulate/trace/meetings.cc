// SPDX-License-Identifier: Apache-2.0
#include "emulate/trace/meetings.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace spillway::emulate {
namespace {

constexpr std::size_t kMostRuns = 8;

// Each rank fits into 16 bits.
std::uint64_t channel_key(std::uint32_t from, std::uint32_t to, std::int32_t tag) {
  return std::uint64_t{from} << 48 | std::uint64_t{to} << 32 | static_cast<std::uint32_t>(tag);
}

}  // namespace

static_assert(kMaxTraceRanks <= 1U << 16);

Meetings::Meetings(const World& world) : world_(world) {
  meeting_of_.resize(world.size());
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
    meeting_of_[rank].assign(world.ranks[rank].nodes.size(), kNoMeeting);
  }
  for (const GraphGroup& group : world.groups) {
    expected_.push_back(static_cast<std::uint32_t>(
        std::count_if(group.ranks.begin(), group.ranks.end(),
                      [&world](std::uint32_t rank) { return world.has_trace[rank]; })));
  }
  match_collectives();
  match_messages();
}

// First numbers each node within its group. Once the size of every group is known, adds the index
// of the group's first meeting.
void Meetings::match_collectives() {
  std::vector<std::uint32_t> calls(world_.groups.size(), 0);
  std::vector<std::uint32_t> most(world_.groups.size(), 0);
  std::vector<std::uint32_t> touched;
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    const std::vector<GraphNode>& nodes = world_.ranks[rank].nodes;
    for (NodeIndex node = 0; node < nodes.size(); ++node) {
      if (nodes[node].kind == NodeKind::kCollective && nodes[node].is_complete()) {
        const std::uint32_t group = nodes[node].group;
        if (calls[group] == 0) {
          touched.push_back(group);
        }
        meeting_of_[rank][node] = calls[group]++;
      }
    }
    for (const std::uint32_t group : touched) {
      most[group] = std::max(most[group], calls[group]);
      calls[group] = 0;
    }
    touched.clear();
  }
  group_first_.push_back(0);
  for (const std::uint32_t count : most) {
    group_first_.push_back(group_first_.back() + count);
  }
  first_message_ = group_first_.back();
  count_ = first_message_;
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    for (NodeIndex node = 0; node < meeting_of_[rank].size(); ++node) {
      if (meeting_of_[rank][node] != kNoMeeting) {
        meeting_of_[rank][node] += group_first_[world_.ranks[rank].nodes[node].group];
      }
    }
  }
}

void Meetings::match_messages() {
  std::unordered_map<std::uint64_t, std::uint32_t> known;
  std::vector<std::vector<std::uint32_t>> channel_of_node(world_.size());
  const auto is_message = [](const GraphNode& node) {
    return (node.kind == NodeKind::kSend || node.kind == NodeKind::kReceive) && node.is_complete();
  };
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    const std::vector<GraphNode>& nodes = world_.ranks[rank].nodes;
    for (NodeIndex node = 0; node < nodes.size(); ++node) {
      if (!is_message(nodes[node])) {
        continue;
      }
      const bool sends = nodes[node].kind == NodeKind::kSend;
      const std::uint32_t from = sends ? rank : nodes[node].peer;
      const std::uint32_t to = sends ? nodes[node].peer : rank;
      const auto [entry, is_new] = known.try_emplace(channel_key(from, to, nodes[node].tag),
                                                     static_cast<std::uint32_t>(channels_.size()));
      if (is_new) {
        channels_.push_back({from, to, nodes[node].tag, 0, 0});
      }
      Channel& channel = channels_[entry->second];
      channel_of_node[rank].push_back(entry->second);
      meeting_of_[rank][node] = sends ? channel.sends++ : channel.receives++;
    }
  }
  for (const Channel& channel : channels_) {
    channel_first_.push_back(static_cast<MeetingIndex>(count_));
    count_ += std::max(channel.sends, channel.receives);
  }
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    std::size_t next = 0;
    for (NodeIndex node = 0; node < meeting_of_[rank].size(); ++node) {
      if (is_message(world_.ranks[rank].nodes[node])) {
        meeting_of_[rank][node] += channel_first_[channel_of_node[rank][next++]];
      }
    }
  }
}

std::uint32_t Meetings::group_of(MeetingIndex meeting) const {
  // The last group that begins at or before `meeting`; an empty group begins where the next does.
  const auto found = std::upper_bound(group_first_.begin(), group_first_.end(), meeting);
  return static_cast<std::uint32_t>(found - group_first_.begin() - 1);
}

std::uint32_t Meetings::sequence_of(MeetingIndex meeting) const {
  return is_collective(meeting) ? meeting - group_first_[group_of(meeting)]
                                : meeting - channel_first_[channel_of(meeting)];
}

std::size_t Meetings::channel_of(MeetingIndex meeting) const {
  const auto found = std::upper_bound(channel_first_.begin(), channel_first_.end(), meeting);
  return static_cast<std::size_t>(found - channel_first_.begin() - 1);
}

std::string Meetings::describe(MeetingIndex meeting, std::span<const NodePlace> came) const {
  if (!is_collective(meeting)) {
    const Channel& channel = channels_[channel_of(meeting)];
    const bool received = !came.empty() && came.front().rank == channel.to;
    return fmt::format(
        "message {} from rank {} to rank {} with tag {}: rank {} came, rank {} did not",
        sequence_of(meeting), channel.from, channel.to, channel.tag,
        received ? channel.to : channel.from, received ? channel.from : channel.to);
  }
  const GraphGroup& group = world_.groups[group_of(meeting)];
  std::vector<std::uint32_t> here;
  for (const NodePlace& place : came) {
    here.push_back(place.rank);
  }
  std::sort(here.begin(), here.end());
  std::vector<std::uint32_t> absent;
  for (const std::uint32_t rank : group.ranks) {
    if (world_.has_trace[rank] && !std::binary_search(here.begin(), here.end(), rank)) {
      absent.push_back(rank);
    }
  }
  const GraphNode& first = world_.ranks[came.front().rank].nodes[came.front().node];
  return fmt::format("{} {} of {}: {} came, {} did not", collective_kind_name(first.collective),
                     sequence_of(meeting),
                     group.name.empty() ? "all ranks" : fmt::format("group '{}'", group.name),
                     ranks_subject(here), ranks_subject(absent));
}

std::string ranks_text(std::span<const std::uint32_t> ranks) {
  std::string text;
  std::size_t runs = 0;
  for (std::size_t i = 0; i < ranks.size(); ++runs) {
    if (runs == kMostRuns) {
      return text + ", ...";
    }
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) {
      ++end;
    }
    text += fmt::format("{}{}", runs == 0 ? "" : ", ", ranks[i]);
    text += end - i > 1 ? fmt::format("-{}", ranks[end - 1]) : "";
    i = end;
  }
  return text;
}

std::string ranks_subject(std::span<const std::uint32_t> ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", ranks_text(ranks));
}

}  // namespace spillway::emulate
