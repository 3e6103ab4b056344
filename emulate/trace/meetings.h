// SPDX-License-Identifier: Apache-2.0
//
// Matches nodes of different ranks. A meeting is one collective of one group, with all its members,
// or one message, with its sender and its receiver.
//
// The n-th collective of a group in a rank's file meets the n-th of every other member. The n-th
// send to a rank with a tag meets that rank's n-th receive from the sender with that tag. The order
// is the file's, not that in which nodes become ready: the real run called them in this order, and
// a replay must keep it. Only nodes that say what they move count (GraphNode::is_complete()).
//
// Built once from a world, which must outlive it. Four bytes per node.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "emulate/trace/graph.h"

namespace spillway::emulate {

using MeetingIndex = std::uint32_t;
inline constexpr MeetingIndex kNoMeeting = UINT32_MAX;

struct Channel {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::int32_t tag = 0;
  std::uint32_t sends = 0;
  std::uint32_t receives = 0;
};

struct NodePlace {
  std::uint32_t rank = 0;
  NodeIndex node = 0;
};

class Meetings {
 public:
  explicit Meetings(const World& world);

  // kNoMeeting if the node moves nothing.
  MeetingIndex of(std::uint32_t rank, NodeIndex node) const { return meeting_of_[rank][node]; }
  std::size_t count() const { return count_; }
  // Meetings below this are collectives; the others are messages.
  MeetingIndex first_message() const { return first_message_; }
  bool is_collective(MeetingIndex meeting) const { return meeting < first_message_; }

  // For a collective: its group, its number within the group, and how many ranks can come. These
  // are the members that have a trace.
  std::uint32_t group_of(MeetingIndex meeting) const;
  std::uint32_t sequence_of(MeetingIndex meeting) const;
  std::uint32_t expected(std::uint32_t group) const { return expected_[group]; }
  // The number of collectives in a group: the most that one rank calls.
  std::uint32_t calls(std::uint32_t group) const {
    return group_first_[group + 1] - group_first_[group];
  }
  MeetingIndex first_of_group(std::uint32_t group) const { return group_first_[group]; }

  std::span<const Channel> channels() const { return channels_; }
  std::size_t channel_of(MeetingIndex meeting) const;
  MeetingIndex first_of_channel(std::size_t channel) const { return channel_first_[channel]; }

  // "all-reduce 3 of group 'dp0': ranks 0-2 came, rank 3 did not"; "message 0 from rank 1 to rank 2
  // with tag 5: ...".
  std::string describe(MeetingIndex meeting, std::span<const NodePlace> came) const;

 private:
  void match_collectives();
  void match_messages();

  const World& world_;
  std::vector<std::vector<MeetingIndex>> meeting_of_;
  std::vector<MeetingIndex> group_first_;
  std::vector<std::uint32_t> expected_;
  std::vector<Channel> channels_;
  std::vector<MeetingIndex> channel_first_;
  MeetingIndex first_message_ = 0;
  std::size_t count_ = 0;
};

// "0-2, 5": ascending ranks, at most a few ranges.
std::string ranks_text(std::span<const std::uint32_t> ranks);
// "rank 3", "ranks 0-2, 5".
std::string ranks_subject(std::span<const std::uint32_t> ranks);

}  // namespace spillway::emulate
