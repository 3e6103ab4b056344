// SPDX-License-Identifier: Apache-2.0
//
// The replay of a trace as real traffic (Replay), and the timers that stand for computing
// (TimerQueue).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/units.h"
#include "collective/operation.h"
#include "emulate/group_communicators.h"
#include "emulate/trace/graph.h"

namespace spillway::emulate {

// Waits until something is due or another thread calls notify(), as precisely as the kernel allows
// and without a busy loop.
//
// A queue holds any number of timers. Finding the earliest takes constant time, removing it takes
// logarithmic time, so lateness does not depend on how many wait. wait() sleeps on the monotonic
// clock. By default the kernel delays a thread's timers by up to 50 us (timer slack);
// make_precise() removes that for the calling thread.
//
// One thread adds, takes and waits; any thread may call notify().

class TimerQueue {
 public:
  struct Timer {
    base::Instant due;
    std::uint64_t id = 0;
    bool operator>(const Timer& other) const {
      return due != other.due ? due > other.due : id > other.id;
    }
  };

  void add(base::Instant due, std::uint64_t what) { timers_.push({due, what}); }
  std::size_t pending() const { return timers_.size(); }
  // Returns the earliest timer if it is due.
  std::optional<Timer> take_due(base::Instant now);
  // Waits until the earliest is due, `latest` is reached, or notify() was called since the previous
  // wait.
  void wait(base::Instant latest);
  void notify();

  // For the calling thread; false if the kernel refuses.
  static bool make_precise();

 private:
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::mutex mutex_;
  std::condition_variable notified_;
  bool is_notified_ = false;
};

// Measures how late `waits` timers fire, one after another, `apart` from each other, while
// `pending` others wait for something far away.
std::vector<base::Duration> measure_lateness(std::size_t pending, std::size_t waits,
                                             base::Duration apart);

// Replays one rank of a trace as real traffic. Computing is replaced by waiting; the shipped
// collectives carry the communication over this process's network.
//
// The order is that of simulate/graph_run.h: each queue computes one node at a time, and
// collectives and messages run beside it. A rank calls the collectives of one group in the order of
// the file, whenever they become ready; likewise its messages to one rank with one tag. So all
// ranks call them in the same order. A send ends when it is called; run() returns when all of them
// have arrived.
//
// The end of a computation is calculated from when it could begin, not from when this thread woke.
// So one late wakeup does not delay all that follows.
//
// Never hangs. An operation that takes longer than `patience` fails and names the rank it waited
// for. If nothing at all happens for that long, run() fails and names the open operations and those
// never called. Data is drawn once and has no meaning.
//
// One thread calls run(), once; operations end on the communicators' threads.

struct ReplayOptions {
  double slowness = 1.0;  // factor on the duration of computing
  base::Duration patience = base::seconds(60);
  // Bits per value of all-reduces; unset: exact.
  std::optional<std::uint8_t> precision{};
};

struct ReplayReport {
  base::Duration length{};  // from the call of run() to the end of the last node
  // Intended length of the waits. Time on both lanes counts once, so never longer than `length`.
  base::Duration computing{};
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;         // passed to operations
  base::DurationSummary lateness;  // of waits
};

class Replay {
 public:
  // All arguments must outlive it.
  Replay(const World& world, std::uint32_t rank, const GroupCommunicators& groups,
         const ReplayOptions& options);
  ~Replay();

  base::Result<ReplayReport> run();

 private:
  // Node kind, group or peer, and tag: nodes with one key are called in order.
  using OrderKey = std::tuple<NodeKind, std::uint32_t, std::int32_t>;
  struct Order {
    std::vector<NodeIndex> nodes;
    std::size_t next = 0;
  };
  struct ComputeQueue {
    bool is_busy = false;
    base::Instant free_since{};
    std::deque<std::pair<NodeIndex, base::Instant>> waiting;  // and when it became ready
  };
  struct Buffers {
    std::vector<float> input;
    std::vector<float> output;
  };
  struct Ended {
    NodeIndex node = 0;
    base::Status status;
    base::Instant at{};
  };

  void collect_orders();
  base::Status become_ready(NodeIndex node, base::Instant at);
  void start_next(ComputeQueue& queue);
  base::Status call_in_order(Order& order);
  base::Status call(NodeIndex node);
  collective::Operation operation_for(NodeIndex node, const GroupCommunicators::Membership& member,
                                      Buffers& buffers) const;
  base::Status end_node(NodeIndex node, base::Instant at);
  base::Status handle_ended_operations();
  base::Status take_due();
  base::Status wait_for_sends();
  base::Status stalled_status() const;
  std::unique_ptr<Buffers> acquire_buffers(std::size_t floats);
  void release_buffers(std::unique_ptr<Buffers> buffers);
  void prepare_buffers();
  std::size_t most_bytes(NodeIndex node) const;
  bool has_communication(NodeIndex node) const;
  Order& order_of(const GraphNode& node);
  ComputeQueue& queue_of(NodeIndex node);

  const World& world_;
  const RankGraph& graph_;
  const GroupCommunicators& groups_;
  ReplayOptions options_;
  base::MonotonicClock clock_;
  Dependents dependents_;
  std::vector<std::uint32_t> left_;
  std::vector<bool> is_ready_;
  std::map<OrderKey, Order> orders_;
  ComputeQueue device_;
  ComputeQueue host_;
  TimerQueue timers_;
  std::size_t done_ = 0;
  std::uint32_t open_operations_ = 0;
  std::map<NodeIndex, std::unique_ptr<Buffers>> in_use_;
  std::multimap<std::size_t, std::unique_ptr<Buffers>> spare_;  // by capacity in floats
  std::vector<base::Duration> late_;
  std::vector<std::pair<base::Instant, base::Instant>> waits_;  // intended begin and end
  base::Instant begun_{};
  base::Instant last_end_{};
  ReplayReport report_;
  std::mutex mutex_;  // guards the following
  std::vector<Ended> ended_;
};

}  // namespace spillway::emulate
