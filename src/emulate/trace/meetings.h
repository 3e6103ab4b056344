// SPDX-License-Identifier: Apache-2.0
//
// Which nodes of different ranks belong together. A meeting is one collective of one group, all of
// whose members come to it, or one message, which its sender and its receiver come to.
//
// The n-th collective of a group in a rank's file meets the n-th of every other member; the n-th
// send to a rank with a tag meets that rank's n-th receive from the sender with that tag. The
// order is the file's, not the one in which nodes happen to become ready: the real run called them
// in one order, and a replay must not mix them up. Only nodes that say what they move count
// (GraphNode::is_complete()).
//
// Made once from a world, which outlives it. Four bytes a node.
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

  // kNoMeeting where the node moves nothing.
  MeetingIndex of(std::uint32_t rank, NodeIndex node) const { return meeting_of_[rank][node]; }
  std::size_t count() const { return count_; }
  // Below: collectives; from it on: messages.
  MeetingIndex first_message() const { return first_message_; }
  bool is_collective(MeetingIndex meeting) const { return meeting < first_message_; }

  // Of a collective: its group, its number within it, and how many can come, which are the members
  // that have a trace.
  std::uint32_t group_of(MeetingIndex meeting) const;
  std::uint32_t sequence_of(MeetingIndex meeting) const;
  std::uint32_t expected(std::uint32_t group) const { return expected_[group]; }
  // How many collectives a rank calls in a group is the difference of what lies between.
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

// "0-2, 5": of ascending ranks, at most a few runs of them.
std::string ranks_text(std::span<const std::uint32_t> ranks);
// "rank 3", "ranks 0-2, 5".
std::string ranks_subject(std::span<const std::uint32_t> ranks);

}  // namespace spillway::emulate
