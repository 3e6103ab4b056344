// SPDX-License-Identifier: Apache-2.0
//
// Runs all ranks' graphs in virtual time. A node begins when its dependencies have ended. Each rank
// computes one node at a time, in the order in which nodes became ready. Work of the host's CPU
// (on_host) runs beside that of the accelerator. Communication runs beside both, and all that is
// ready runs at once. A collective starts when its last member arrives. A message starts when it is
// sent, whether or not its receiver waits. A receive ends when its message has arrived.
//
// Deterministic: events of one time happen in the order of ranks and nodes.
//
// A run always ends. If nothing more can happen while nodes are left, or at `limit`, the result
// says so. It names each meeting that ranks wait at, with the ranks that arrived and those that did
// not.
//
// One thread. Memory: 12 bytes per node and 4 per dependency; 32 more per node if times are kept.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "emulate/simulate/busy_time.h"
#include "emulate/simulate/communication_model.h"
#include "emulate/trace/meetings.h"

namespace spillway::emulate {

// A rank that computes `factor` times as long, or that does nothing from `dies` on.
struct RankTrouble {
  std::uint32_t rank = 0;
  double factor = 1.0;
  base::Instant dies{base::Duration(INT64_MAX)};
};

struct GraphRunOptions {
  base::Duration limit = base::seconds(1'000'000);
  std::vector<RankTrouble> troubles;
  bool keeps_times = false;  // when each node began and ended, and what it waited for
  // Called for every meeting when it ends; may be empty.
  std::function<void(const Transfer&, base::Instant began, base::Instant ended)> on_transfer;
};

inline constexpr NodePlace kNowhere{UINT32_MAX, 0};

struct NodeTimes {
  base::Instant began;
  base::Instant ended;
  // The node that ended last before this one could begin; kNowhere if it began at once.
  NodePlace after = kNowhere;
};

struct RankTotals {
  // On at least one lane, until the rank died or the run ended; so never longer than the run.
  base::Duration computing{};
  base::Instant ended{};  // end of its last node
};

struct GraphRunResult {
  base::Status status;  // if not ok: why not all nodes were run
  base::Instant ended{};
  std::uint64_t nodes_run = 0;
  std::uint64_t transfers = 0;
  std::uint64_t events = 0;  // ends of nodes, plus the model's events
  std::vector<RankTotals> ranks;
  std::vector<std::vector<NodeTimes>> times;  // by rank and node, if kept
};

class GraphRun {
 public:
  // All arguments must outlive it.
  GraphRun(const World& world, const Meetings& meetings, CommunicationModel& model,
           const GraphRunOptions& options);

  GraphRunResult run();

 private:
  struct ComputeEnd {
    std::int64_t at;
    NodePlace place;
    bool operator>(const ComputeEnd& other) const {
      return at != other.at                   ? at > other.at
             : place.rank != other.place.rank ? place.rank > other.place.rank
                                              : place.node > other.place.node;
    }
  };
  // Runs one node at a time.
  struct Lane {
    bool is_busy = false;
    std::deque<NodeIndex> waiting;
  };
  struct Rank {
    std::vector<std::uint32_t> left;  // dependencies that have not ended
    Lane device;
    Lane host;
    double factor = 1.0;
    base::Instant dies{base::Duration(INT64_MAX)};
    BusyTime computing;
  };
  struct OpenTransfer {
    Transfer transfer;
    base::Instant began;
    std::vector<NodePlace> nodes;  // nodes that wait
    NodePlace sender = kNowhere;   // for a message
    bool is_moving = false;
    bool has_come = false;  // a message that has arrived but was not received yet
  };

  base::Status find_self_dependency() const;
  void begin_all();
  void step();
  void become_ready(NodePlace place);
  void begin_computing(NodePlace place);
  // `before`: the node that occupied the lane, if the next one had to wait for it.
  void start_lane(std::uint32_t rank, Lane& lane, NodePlace before);
  void come(NodePlace place, MeetingIndex meeting);
  void begin_transfer(OpenTransfer& open);
  void note_what_it_waited_for(NodePlace place, NodePlace after);
  void end_transfer(MeetingIndex meeting);
  void end_node(NodePlace place);
  void settle();
  Transfer transfer_of(MeetingIndex meeting, NodePlace place) const;
  Lane& lane_of(NodePlace place);
  base::Status what_is_left(bool reached_limit) const;
  bool has_died(std::uint32_t rank) const { return ranks_[rank].dies <= now_; }

  const World& world_;
  const Meetings& meetings_;
  CommunicationModel& model_;
  const GraphRunOptions& options_;
  std::vector<Dependents> dependents_;
  std::vector<Rank> ranks_;
  std::priority_queue<ComputeEnd, std::vector<ComputeEnd>, std::greater<>> computing_;
  std::unordered_map<MeetingIndex, OpenTransfer> open_;
  std::vector<NodePlace> ended_;  // nodes whose dependents must be checked
  std::vector<MeetingIndex> ended_transfers_;
  base::Instant now_{};
  base::Status failed_;
  GraphRunResult result_;
};

// From the node that ended last, back along the node that each waited for, in order of time. Empty
// if times were not kept.
std::vector<NodePlace> critical_path(const GraphRunResult& result);

}  // namespace spillway::emulate
