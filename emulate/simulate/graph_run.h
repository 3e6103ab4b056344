// SPDX-License-Identifier: Apache-2.0
//
// Runs all ranks' graphs in virtual time, over a model of communication, and shows the finished run
// as a timeline. A node begins when its dependencies have ended. Each rank
// computes one node at a time, in the order in which nodes became ready. Work of the host's CPU
// (on_host) runs in parallel to that of the accelerator. Communication runs in parallel to both,
// and any number of transfers run at once. A collective starts when its last member arrives. A
// message starts when it is sent, whether or not its receiver waits. A receive ends when its
// message has arrived.
//
// Deterministic: events of one time happen in the order of ranks and nodes.
//
// A run always ends. If nodes are left that can never begin, or at `limit`, the result has an error
// that names each match at which ranks wait, the ranks that arrived and those that did not.
//
// One thread. Memory: 12 bytes per node and 4 per dependency; 32 more per node if times are kept.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "emulate/trace/graph.h"

namespace spillway::emulate {

// ------------------------------------------------------------------ communication
//
// How long communication takes. The run begins each transfer once
// all participants have arrived. The model advances time and reports the transfers that have ended.
//
//   RecordedModel  durations of the trace (here)
//   FlowModel      max-min fair rates on a network (flow_model.h)
//   PacketModel    the simulator's network and transports (packet_model.h)
//
// FlowModel and PacketModel turn collectives into flows with flow_plan_of(). One thread.

// One match (trace/graph.h): a collective among the ranks of a group, or a message. The match's
// index identifies the transfer.
struct Transfer {
  MatchIndex match = 0;
  CollectiveKind collective = CollectiveKind::kAllReduce;
  bool is_message = false;
  std::uint32_t group = 0;  // for a collective
  std::uint32_t from = 0;   // for a message
  std::uint32_t to = 0;
  std::uint32_t root = 0;  // a rank, if the collective has a root
  std::uint64_t bytes = 0;
  base::Duration recorded{};  // the longest that a trace recorded
};

// Time never goes back.
class CommunicationModel {
 public:
  virtual ~CommunicationModel() = default;

  // Fails with an explanation if the model cannot carry the transfer.
  virtual base::Status begin(const Transfer& transfer, base::Instant now) = 0;
  // Advances until a transfer ends, but not beyond `limit`, and returns that time. Appends the
  // transfers that end then to `ended`, in the order of their matches.
  virtual base::Instant advance(base::Instant limit, std::vector<MatchIndex>& ended) = 0;
  virtual bool has_open() const = 0;
  // Work done so far: flows that changed, packets that moved.
  virtual std::uint64_t events() const = 0;
};

// ------------------------------------------------------------------ collectives as flows

// kAutomatic chooses as the library does (lib/collective/exact).
enum class CollectiveAlgorithm : std::uint8_t { kAutomatic, kRing, kDirect, kSwitch };

// The flows of a collective, as in the library's algorithms:
//
//   shape      flows                         each moves, in an all-reduce of S bytes among n
//   ring       each rank to the next         2 (n - 1) / n S, in 2 (n - 1) steps
//   pairs      each rank to every other      2 / n S, in 2 steps
//   to root    each rank to the root         (gather)
//   from root  the root to each rank         (scatter)
//   switch     each rank to the switch and back    S, in 2 steps
//
// A switch that adds (kSwitch) carries one copy over each link, up and down.
enum class FlowShape : std::uint8_t { kRing, kPairs, kToRoot, kFromRoot, kSwitch };

struct FlowPlan {
  FlowShape shape = FlowShape::kPairs;
  double flow_bytes = 0.0;  // per flow, in all steps together
  std::uint32_t steps = 1;  // each waits for the previous one
};

// `members`: at least two. `all_reduce_factor` scales an all-reduce's bytes, for its codec.
FlowPlan flow_plan_of(const Transfer& transfer, std::uint32_t members,
                      CollectiveAlgorithm algorithm, double all_reduce_factor);

// ------------------------------------------------------------------ recorded durations

// Communication takes as long as the trace recorded, without contention. `spillway emulate show`
// draws this. A transfer without a recorded duration takes no time.
class RecordedModel final : public CommunicationModel {
 public:
  base::Status begin(const Transfer& transfer, base::Instant now) override {
    ends_.emplace(now + transfer.recorded, transfer.match);
    return {};
  }
  base::Instant advance(base::Instant limit, std::vector<MatchIndex>& ended) override {
    if (ends_.empty() || ends_.top().first > limit) {
      return limit;
    }
    const base::Instant now = ends_.top().first;
    while (!ends_.empty() && ends_.top().first == now) {
      ended.push_back(ends_.top().second);
      ends_.pop();
      ++events_;
    }
    return now;
  }
  bool has_open() const override { return !ends_.empty(); }
  std::uint64_t events() const override { return events_; }

 private:
  using End = std::pair<base::Instant, MatchIndex>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::uint64_t events_ = 0;
};

// The time in which a rank computes. Time in which host and device compute in parallel counts once.
// Intervals must be added in the order of their beginnings. Plain value.
class BusyTime {
 public:
  void add(base::Instant from, base::Instant until) {
    counted_ += std::max(base::Duration(), until - std::max(from, until_));
    until_ = std::max(until_, until);
  }

  // Returns the part before `end`; no interval may begin later.
  base::Duration before(base::Instant end) const {
    return counted_ - std::max(base::Duration(), until_ - end);
  }

 private:
  base::Duration counted_{};
  base::Instant until_{};
};

// A rank whose computation takes `factor` times as long, or that does nothing from `dies` on.
struct RankFault {
  std::uint32_t rank = 0;
  double factor = 1.0;
  base::Instant dies{base::Duration(INT64_MAX)};
};

struct GraphRunOptions {
  base::Duration limit = base::seconds(1'000'000);
  std::vector<RankFault> faults;
  bool keeps_times = false;  // fills GraphRunResult::times
  // Called for every match when it ends; may be empty.
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
  // Until the rank died or the run ended, so never longer than the run.
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
  GraphRun(const World& world, const Matches& matches, CommunicationModel& model,
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
  struct ComputeQueue {
    bool is_busy = false;
    std::deque<NodeIndex> waiting;
  };
  struct Rank {
    std::vector<std::uint32_t> left;  // dependencies that have not ended
    ComputeQueue device;
    ComputeQueue host;
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
    bool has_arrived = false;  // for a message: it has arrived but was not received yet
  };

  base::Status find_self_dependency() const;
  void begin_all();
  void step();
  void become_ready(NodePlace place);
  void begin_computing(NodePlace place);
  // `before`: the node that occupied the queue until now; kNowhere if the queue was idle.
  void start_next(std::uint32_t rank, ComputeQueue& queue, NodePlace before);
  void arrive(NodePlace place, MatchIndex match);
  void begin_transfer(OpenTransfer& open);
  void record_predecessor(NodePlace place, NodePlace after);
  void end_transfer(MatchIndex match);
  void end_node(NodePlace place);
  void release_dependents();
  Transfer transfer_of(MatchIndex match, NodePlace place) const;
  ComputeQueue& queue_of(NodePlace place);
  base::Status unfinished_status(bool reached_limit) const;
  bool has_died(std::uint32_t rank) const { return ranks_[rank].dies <= now_; }

  const World& world_;
  const Matches& matches_;
  CommunicationModel& model_;
  const GraphRunOptions& options_;
  std::vector<Dependents> dependents_;
  std::vector<Rank> ranks_;
  std::priority_queue<ComputeEnd, std::vector<ComputeEnd>, std::greater<>> computing_;
  std::unordered_map<MatchIndex, OpenTransfer> open_;
  std::vector<NodePlace> ended_;  // nodes whose dependents must be checked
  std::vector<MatchIndex> ended_transfers_;
  base::Instant now_{};
  base::Status failed_;
  GraphRunResult result_;
};

// ------------------------------------------------------------------ the timeline
//
// A finished run as people read it: its critical path, and a page that opens without a network,
// with a row per rank and a bar per node. The page shows the critical path in its own colour and as
// a table. It draws at most the kMaxBars longest bars and kMaxRows ranks. The run must have kept
// its times. Pure functions.

inline constexpr std::size_t kMaxBars = 20'000;
inline constexpr std::size_t kMaxRows = 64;

// Returns the path in order of time: from the node that ended last, back along the node that each
// node waited for. Empty if times were not kept.
std::vector<NodePlace> critical_path(const GraphRunResult& result);

std::string timeline_page(const std::string& title, const World& world,
                          const GraphRunResult& result);

// Describes a node in tables: "all-reduce of 4096 bytes 'grad'".
std::string node_text(const World& world, NodePlace place);

}  // namespace spillway::emulate
