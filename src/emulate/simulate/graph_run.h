// SPDX-License-Identifier: Apache-2.0
//
// All ranks' graphs in virtual time. A node begins when what it depends on has ended. Computing is
// done by one thing after another on each rank, in the order in which nodes became ready; what the
// host's processor does (on_host) beside what an accelerator does. Communication runs beside both,
// as much at once as is ready: a collective from when its last member came, a message from when it
// is sent, whether its receiver waits or not; a receive ends when its message has come.
//
// Deterministic: what happens at one time happens in the order of ranks and nodes.
//
// A run always ends. Where nothing can happen any more and nodes are left, or `limit` has come, the
// result says so and names each meeting that somebody waits at, with who came and who did not.
//
// One thread. Memory: 12 bytes a node and 4 a dependency, and 32 a node more where times are kept.
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
#include "emulate/simulate/communication_model.h"
#include "emulate/trace/meetings.h"

namespace spillway::emulate {

// A rank whose computing takes `factor` of its time, or that does nothing from `dies` on.
struct RankTrouble {
  std::uint32_t rank = 0;
  double factor = 1.0;
  base::Instant dies{base::Duration(INT64_MAX)};
};

struct GraphRunOptions {
  base::Duration limit = base::seconds(1'000'000);
  std::vector<RankTrouble> troubles;
  bool keeps_times = false;  // when each node began and ended, and what it waited for
  // Told of every meeting that ended, as it does; may be empty.
  std::function<void(const Transfer&, base::Instant began, base::Instant ended)> on_transfer;
};

inline constexpr NodePlace kNowhere{UINT32_MAX, 0};

struct NodeTimes {
  base::Instant began;
  base::Instant ended;
  // What ended last before it could begin; none: it began at once.
  NodePlace after = kNowhere;
};

struct RankTotals {
  base::Duration computing{};  // on either lane or both, so never longer than the run
  base::Instant ended{};       // its last node
};

struct GraphRunResult {
  base::Status status;  // not ok: not all nodes were run, and this says why
  base::Instant ended{};
  std::uint64_t nodes_run = 0;
  std::uint64_t transfers = 0;
  std::uint64_t events = 0;  // ends of nodes, and the model's own
  std::vector<RankTotals> ranks;
  std::vector<std::vector<NodeTimes>> times;  // by rank and node, where they are kept
};

class GraphRun {
 public:
  // All outlive it.
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
  // One at a time.
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
    base::Instant computes_until{};  // on either lane, as far as it is known
  };
  struct OpenTransfer {
    Transfer transfer;
    base::Instant began;
    std::vector<NodePlace> nodes;  // who waits
    NodePlace sender = kNowhere;   // of a message
    bool is_moving = false;
    bool has_come = false;  // a message that is there, and not yet received
  };

  base::Status find_self_dependency() const;
  void begin_all();
  void step();
  void become_ready(NodePlace place);
  void begin_computing(NodePlace place);
  // `before` is what the lane did last, where the next had to wait for it.
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
  std::vector<NodePlace> ended_;  // whose dependents are to be looked at
  std::vector<MeetingIndex> ended_transfers_;
  base::Instant now_{};
  base::Status failed_;
  GraphRunResult result_;
};

// From the node that ended last, back over what each waited for: the first of them first. Empty
// where times were not kept.
std::vector<NodePlace> critical_path(const GraphRunResult& result);

}  // namespace spillway::emulate
