// SPDX-License-Identifier: Apache-2.0
#include "emulate/replay.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/random.h"
#include "emulate/simulate/graph_run.h"
#include "emulate/trace/graph.h"

namespace spillway::emulate {

namespace {

constexpr std::size_t kMaxSpareBuffers = 64;
constexpr std::size_t kPreparedBuffers = 8;
constexpr std::size_t kMaxNamedCalls = 8;

collective::Kind kind_of_collective(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return collective::Kind::kAllReduce;
    case CollectiveKind::kReduce:
      return collective::Kind::kReduce;
    case CollectiveKind::kAllGather:
      return collective::Kind::kAllGather;
    case CollectiveKind::kGather:
      return collective::Kind::kGather;
    case CollectiveKind::kScatter:
      return collective::Kind::kScatter;
    case CollectiveKind::kBroadcast:
      return collective::Kind::kBroadcast;
    case CollectiveKind::kAllToAll:
      return collective::Kind::kAllToAll;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kReduceScatterBlock:
      return collective::Kind::kReduceScatter;
    case CollectiveKind::kBarrier:
      break;
  }
  return collective::Kind::kBarrier;
}

// True if a trace's bytes are those of all ranks together, and each rank has a part.
bool has_parts(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kReduceScatterBlock ||
         kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kScatter;
}

std::size_t floats_for(std::size_t bytes) {
  return (bytes + sizeof(float) - 1) / sizeof(float);
}

// Draws numbers like gradients', which codecs cannot compress well. A few thousand are repeated,
// because drawing takes longer than copying.
void draw(std::vector<float>& values, std::size_t count) {
  constexpr std::size_t kDrawn = 4096;
  static const std::vector<float> kNumbers = [] {
    std::vector<float> drawn;
    base::RandomSequence random(kDrawn);
    for (std::size_t i = 0; i < kDrawn; ++i) {
      drawn.push_back(static_cast<float>(random.next_below(2'000'001)) / 1e6F - 1.0F);
    }
    return drawn;
  }();
  values.reserve(count);
  while (values.size() < count) {
    const std::size_t more = std::min(kDrawn, count - values.size());
    values.insert(values.end(), kNumbers.begin(),
                  kNumbers.begin() + static_cast<std::ptrdiff_t>(more));
  }
}

}  // namespace

Replay::Replay(const World& world, std::uint32_t rank, const GroupCommunicators& groups,
               const ReplayOptions& options)
    : world_(world),
      graph_(world.ranks[rank]),
      groups_(groups),
      options_(options),
      dependents_(graph_),
      left_(dependency_counts(graph_)),
      is_ready_(graph_.nodes.size(), false) {
  collect_orders();
  prepare_buffers();
}

Replay::~Replay() = default;

bool Replay::has_communication(NodeIndex node) const {
  const GraphNode& what = graph_.nodes[node];
  return what.moves_data() &&
         (what.kind != NodeKind::kCollective || groups_.membership(what.group).size > 1);
}

Replay::Order& Replay::order_of(const GraphNode& node) {
  const bool is_collective = node.kind == NodeKind::kCollective;
  return orders_[{node.kind, is_collective ? node.group : node.peer, is_collective ? 0 : node.tag}];
}

void Replay::collect_orders() {
  for (NodeIndex node = 0; node < graph_.nodes.size(); ++node) {
    if (has_communication(node)) {
      order_of(graph_.nodes[node]).nodes.push_back(node);
    }
  }
}

Replay::ComputeQueue& Replay::queue_of(NodeIndex node) {
  return graph_.nodes[node].on_host ? host_ : device_;
}

// ------------------------------------------------------------------ the loop

base::Result<ReplayReport> Replay::run() {
  TimerQueue::make_precise();
  begun_ = last_end_ = clock_.now();
  device_.free_since = host_.free_since = begun_;
  base::Status status;
  for (NodeIndex node = 0; status.ok() && node < graph_.nodes.size(); ++node) {
    if (left_[node] == 0) {
      status = become_ready(node, begun_);
    }
  }
  while (status.ok() && done_ < graph_.nodes.size()) {
    const std::size_t before = done_;
    status = handle_ended_operations();
    if (status.ok()) {
      status = take_due();
    }
    if (!status.ok() || done_ > before || done_ == graph_.nodes.size()) {
      continue;
    }
    if (timers_.pending() == 0 && clock_.now() - last_end_ > options_.patience) {
      status = stalled_status();
      continue;
    }
    timers_.wait(clock_.now() + options_.patience);
  }
  report_.length = last_end_ - begun_;
  if (status.ok()) {
    status = wait_for_sends();
  }
  if (!status.ok()) {
    // No operation may write into our buffers once they are freed.
    static_cast<void>(groups_.all_ranks().abort(status.message()));
    static_cast<void>(wait_for_sends());
    return status;
  }
  report_.lateness = base::summarise(std::move(late_));
  // A late wakeup may begin a wait of one queue before the latest one of the other.
  std::sort(waits_.begin(), waits_.end());
  BusyTime computing;
  for (const auto& [from, until] : waits_) {
    computing.add(from, until);
  }
  report_.computing = computing.before(last_end_);
  return report_;
}

base::Status Replay::handle_ended_operations() {
  std::vector<Ended> ended;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(ended_);
  }
  base::Status first;
  for (const Ended& each : ended) {  // even after a failure, because each must be released
    --open_operations_;
    const auto found = in_use_.find(each.node);
    if (found != in_use_.end()) {
      release_buffers(std::move(found->second));
      in_use_.erase(found);
    }
    if (!first.ok()) {
      continue;
    }
    if (!each.status.ok()) {
      first = {each.status.code(),
               fmt::format("node {}: {}", graph_.nodes[each.node].id, each.status.message())};
    } else if (graph_.nodes[each.node].kind != NodeKind::kSend) {
      first = end_node(each.node, each.at);
    }
  }
  return first;
}

base::Status Replay::take_due() {
  while (const auto timer = timers_.take_due(clock_.now())) {
    const auto node = static_cast<NodeIndex>(timer->id);
    late_.push_back(clock_.now() - timer->due);
    ComputeQueue& queue = queue_of(node);
    queue.is_busy = false;
    queue.free_since = timer->due;
    if (base::Status status = end_node(node, timer->due); !status.ok()) {
      return status;
    }
    start_next(queue);
  }
  return {};
}

base::Status Replay::end_node(NodeIndex node, base::Instant at) {
  ++done_;
  last_end_ = std::max(last_end_, clock_.now());
  for (const NodeIndex waiter : dependents_.of(node)) {
    if (--left_[waiter] == 0) {
      if (base::Status status = become_ready(waiter, at); !status.ok()) {
        return status;
      }
    }
  }
  return {};
}

base::Status Replay::become_ready(NodeIndex node, base::Instant at) {
  is_ready_[node] = true;
  if (has_communication(node)) {
    return call_in_order(order_of(graph_.nodes[node]));
  }
  ComputeQueue& queue = queue_of(node);
  queue.waiting.emplace_back(node, at);
  if (!queue.is_busy) {
    start_next(queue);
  }
  return {};
}

void Replay::start_next(ComputeQueue& queue) {
  if (queue.is_busy || queue.waiting.empty()) {
    return;
  }
  const auto [node, ready] = queue.waiting.front();
  queue.waiting.pop_front();
  queue.is_busy = true;
  const double length = options_.slowness * static_cast<double>(graph_.nodes[node].duration_ns);
  const base::Duration wait = bounded_duration(static_cast<std::int64_t>(std::min(length, 1e15)));
  const base::Instant from = std::max(ready, queue.free_since);
  waits_.emplace_back(from, from + wait);
  timers_.add(from + wait, node);
}

// ------------------------------------------------------------------ calls

base::Status Replay::call_in_order(Order& order) {
  while (order.next < order.nodes.size() && is_ready_[order.nodes[order.next]]) {
    const NodeIndex node = order.nodes[order.next++];
    if (base::Status status = call(node); !status.ok()) {
      return {status.code(), fmt::format("node {}: {}", graph_.nodes[node].id, status.message())};
    }
  }
  return {};
}

// The smallest that fits, else a new one.
std::unique_ptr<Replay::Buffers> Replay::acquire_buffers(std::size_t floats) {
  const auto found = spare_.lower_bound(floats);
  if (found == spare_.end()) {
    return std::make_unique<Buffers>();
  }
  std::unique_ptr<Buffers> buffers = std::move(found->second);
  spare_.erase(found);
  return buffers;
}

void Replay::release_buffers(std::unique_ptr<Buffers> buffers) {
  if (spare_.size() >= kMaxSpareBuffers) {
    spare_.erase(spare_.begin());  // drops the smallest
  }
  const std::size_t floats = std::min(buffers->input.size(), buffers->output.size());
  spare_.emplace(floats, std::move(buffers));
}

// Allocates and touches memory for the largest operations before the clock starts.
void Replay::prepare_buffers() {
  std::vector<std::size_t> sizes;
  for (NodeIndex node = 0; node < graph_.nodes.size(); ++node) {
    if (has_communication(node)) {
      sizes.push_back(floats_for(most_bytes(node)));
    }
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  sizes.resize(std::min(sizes.size(), kPreparedBuffers));
  for (const std::size_t floats : sizes) {
    auto buffers = std::make_unique<Buffers>();
    draw(buffers->input, floats);
    buffers->output.resize(floats);
    release_buffers(std::move(buffers));
  }
}

// An upper bound for the memory that either side of the operation needs.
std::size_t Replay::most_bytes(NodeIndex index) const {
  const GraphNode& node = graph_.nodes[index];
  const bool grows =
      node.kind == NodeKind::kCollective &&
      (node.collective == CollectiveKind::kAllGather || node.collective == CollectiveKind::kGather);
  return static_cast<std::size_t>(node.bytes) * (grows ? groups_.membership(node.group).size : 1) +
         sizeof(float) * world_.size();
}

// Rounds sizes up to whole floats.
collective::Operation Replay::operation_for(NodeIndex index,
                                            const GroupCommunicators::Membership& member,
                                            Buffers& buffers) const {
  const GraphNode& node = graph_.nodes[index];
  collective::Operation operation;
  operation.type = collective::DataType::kFloat32;
  operation.op = collective::ReduceOp::kAverage;
  operation.timeout = options_.patience;
  operation.count = std::max<std::size_t>(1, floats_for(node.bytes));
  if (node.kind == NodeKind::kCollective) {
    operation.kind = kind_of_collective(node.collective);
    const std::vector<std::uint32_t>& ranks = world_.groups[node.group].ranks;
    const auto root = std::lower_bound(ranks.begin(), ranks.end(), node.root);
    if (root != ranks.end() && *root == node.root) {
      operation.root = static_cast<std::uint16_t>(root - ranks.begin());
    }
    if (has_parts(node.collective)) {
      operation.count = std::max<std::size_t>(1, operation.count / member.size);
    }
    if (operation.kind == collective::Kind::kBarrier) {
      operation.count = 0;
    }
    if (operation.kind == collective::Kind::kAllReduce && options_.precision) {
      operation.tolerance.emplace();
      operation.tolerance->precision = *options_.precision;
      operation.tolerance->gather_precision = *options_.precision;
    }
  } else {
    operation.kind =
        node.kind == NodeKind::kSend ? collective::Kind::kSend : collective::Kind::kReceive;
    operation.root = static_cast<std::uint16_t>(node.peer);
    operation.tag = static_cast<std::uint32_t>(node.tag) % collective::kMaxTag;
  }
  const collective::Group group{member.rank, member.size, 0};
  const std::size_t in = collective::input_bytes(operation, group);
  const std::size_t out = collective::output_bytes(operation, group);
  draw(buffers.input, floats_for(in));
  buffers.output.resize(std::max(buffers.output.size(), floats_for(out)));
  operation.input = in > 0 ? buffers.input.data() : nullptr;
  operation.output = out > 0 ? buffers.output.data() : nullptr;
  return operation;
}

base::Status Replay::call(NodeIndex index) {
  const GraphNode& node = graph_.nodes[index];
  GroupCommunicators::Membership member{&groups_.all_ranks(), groups_.all_ranks().rank(),
                                        groups_.all_ranks().world()};
  if (node.kind == NodeKind::kCollective) {
    member = groups_.membership(node.group);
  }
  std::unique_ptr<Buffers> buffers = acquire_buffers(floats_for(most_bytes(index)));
  const collective::Operation operation = operation_for(index, member, *buffers);
  in_use_[index] = std::move(buffers);
  const auto request =
      member.communicator->submit(operation, [this, index](const base::Status& status) {
        const base::Instant now = clock_.now();
        {
          const std::lock_guard lock(mutex_);
          ended_.push_back({index, status, now});
        }
        timers_.notify();
      });
  if (!request.ok()) {
    in_use_.erase(index);
    return request.status();
  }
  ++open_operations_;
  ++report_.operations;
  report_.bytes += node.bytes;
  return node.kind == NodeKind::kSend ? end_node(index, clock_.now()) : base::Status();
}

base::Status Replay::wait_for_sends() {
  const base::Instant latest = clock_.now() + options_.patience * 2;
  base::Status first;
  while (open_operations_ > 0 && clock_.now() < latest) {
    if (base::Status status = handle_ended_operations(); !status.ok() && first.ok()) {
      first = std::move(status);
    }
    if (open_operations_ > 0) {
      timers_.wait(latest);
    }
  }
  return first;
}

base::Status Replay::stalled_status() const {
  std::string text =
      fmt::format("nothing happened for {:.1f} s, {} of {} nodes are done",
                  base::microseconds_of(options_.patience) / 1e6, done_, graph_.nodes.size());
  std::size_t named = 0;
  for (const auto& [key, order] : orders_) {
    if (order.next == order.nodes.size() || named == kMaxNamedCalls) {
      continue;
    }
    ++named;
    const NodeIndex node = order.nodes[order.next];
    text += fmt::format("\n  {} {} of {} {} was not called: node {} waits for {} others",
                        node_kind_name(std::get<0>(key)), order.next,
                        std::get<0>(key) == NodeKind::kCollective ? "group" : "rank",
                        std::get<0>(key) == NodeKind::kCollective
                            ? fmt::format("'{}'", world_.groups[std::get<1>(key)].name)
                            : std::to_string(std::get<1>(key)),
                        graph_.nodes[node].id, left_[node]);
  }
  for (const auto& [node, buffers] : in_use_) {
    if (++named > 2 * kMaxNamedCalls) {
      break;
    }
    text += fmt::format("\n  node {} was called and is not over", graph_.nodes[node].id);
  }
  return {base::StatusCode::kTimedOut, text};
}

std::optional<TimerQueue::Timer> TimerQueue::take_due(base::Instant now) {
  if (timers_.empty() || timers_.top().due > now) {
    return std::nullopt;
  }
  const Timer timer = timers_.top();
  timers_.pop();
  return timer;
}

void TimerQueue::wait(base::Instant latest) {
  const base::Instant until = timers_.empty() ? latest : std::min(latest, timers_.top().due);
  // The base clock and steady_clock are both CLOCK_MONOTONIC.
  const std::chrono::steady_clock::time_point deadline{
      std::chrono::nanoseconds(until.since_zero().count())};
  std::unique_lock lock(mutex_);
  notified_.wait_until(lock, deadline, [this] { return is_notified_; });
  is_notified_ = false;
}

void TimerQueue::notify() {
  {
    const std::lock_guard lock(mutex_);
    is_notified_ = true;
  }
  notified_.notify_one();
}

bool TimerQueue::make_precise() {
  return ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL) == 0;
}

std::vector<base::Duration> measure_lateness(std::size_t pending, std::size_t waits,
                                             base::Duration apart) {
  const base::MonotonicClock clock;
  TimerQueue queue;
  TimerQueue::make_precise();
  const base::Instant far = clock.now() + base::seconds(3600);
  for (std::size_t i = 0; i < pending; ++i) {
    queue.add(far + base::microseconds(static_cast<std::int64_t>(i)), i);
  }
  std::vector<base::Duration> late;
  for (std::size_t i = 0; i < waits; ++i) {
    const base::Instant due = clock.now() + apart;
    queue.add(due, pending + i);
    while (!queue.take_due(clock.now())) {
      queue.wait(far);
    }
    late.push_back(clock.now() - due);
  }
  return late;
}

}  // namespace spillway::emulate
