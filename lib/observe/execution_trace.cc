// SPDX-License-Identifier: Apache-2.0
#include "observe/execution_trace.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/own_file.h"
#include "launch/launch.h"
#include "observe/log.h"

namespace spillway::observe {
namespace {

constexpr std::size_t kWrittenTogether = 1 << 16;
constexpr std::size_t kMostUnwritten = 100'000;

std::optional<chakra::CollectiveKind> collective_of(collective::Kind kind) {
  switch (kind) {
    case collective::Kind::kAllReduce:
      return chakra::CollectiveKind::kAllReduce;
    case collective::Kind::kReduceScatter:
      return chakra::CollectiveKind::kReduceScatter;
    case collective::Kind::kAllGather:
      return chakra::CollectiveKind::kAllGather;
    case collective::Kind::kBroadcast:
      return chakra::CollectiveKind::kBroadcast;
    case collective::Kind::kReduce:
      return chakra::CollectiveKind::kReduce;
    case collective::Kind::kGather:
      return chakra::CollectiveKind::kGather;
    case collective::Kind::kScatter:
      return chakra::CollectiveKind::kScatter;
    case collective::Kind::kAllToAll:
      return chakra::CollectiveKind::kAllToAll;
    case collective::Kind::kBarrier:
      return chakra::CollectiveKind::kBarrier;
    default:
      return std::nullopt;
  }
}

// Bytes as chakra.h counts them: the whole tensor where each rank holds a part of it.
std::uint64_t trace_bytes(const collective::Operation& operation, const collective::Group& group) {
  switch (operation.kind) {
    case collective::Kind::kReduceScatter:
    case collective::Kind::kScatter:
    case collective::Kind::kAllToAll:
      return operation.bytes() * group.workers();
    default:
      return operation.bytes();
  }
}

chakra::Node node_of(const collective::Operation& operation, const collective::Group& group,
                     const std::string& name) {
  chakra::Node node;
  node.name = collective::kind_name(operation.kind);
  node.group = name;
  node.bytes = trace_bytes(operation, group);
  node.collective = collective_of(operation.kind);
  if (node.collective) {
    node.kind = chakra::NodeKind::kCollective;
    node.root = name.empty() ? operation.root : 0;
  } else {
    const bool sends = operation.kind == collective::Kind::kSend;
    node.kind = sends ? chakra::NodeKind::kSend : chakra::NodeKind::kReceive;
    node.tag = static_cast<std::int32_t>(operation.tag);
    if (name.empty() && operation.root != collective::kAnyRank) {
      node.peer = operation.root;
    }
  }
  return node;
}

// Traces of this process, by folder and rank. They live as long as the process, because
// communicators come and go.
struct TraceRegistry {
  std::mutex mutex;
  std::map<std::pair<std::string, std::uint32_t>, std::shared_ptr<ExecutionTrace>> traces;
};
TraceRegistry& trace_registry() {
  static auto* registry =
      new TraceRegistry();  // never freed: threads use it until the process ends
  return *registry;
}

}  // namespace

class ExecutionTrace::Watcher final : public RequestWatcher {
 public:
  Watcher(std::shared_ptr<ExecutionTrace> trace, std::uint64_t id)
      : trace_(std::move(trace)), id_(id) {}
  void on_wait(base::Instant began, base::Instant ended, bool is_over) override {
    trace_->on_wait(id_, began, ended, is_over);
  }
  void on_end(base::Instant at) override { trace_->on_end(id_, at); }

 private:
  std::shared_ptr<ExecutionTrace> trace_;
  std::uint64_t id_;
};

base::Result<std::shared_ptr<ExecutionTrace>> ExecutionTrace::open(
    const std::string& folder, const base::Environment& environment, const Identity& identity) {
  std::uint32_t rank = identity.rank;
  std::uint32_t world = identity.world - identity.servers;
  const base::Result<std::optional<launch::LaunchOutline>> launch =
      launch::outline_of_launch(environment);
  if (launch.ok() && *launch && (*launch)->position.world >= world) {
    rank = (*launch)->position.rank;
    world = (*launch)->position.world;
  }
  TraceRegistry& registry = trace_registry();
  const std::lock_guard lock(registry.mutex);
  std::shared_ptr<ExecutionTrace>& known = registry.traces[{folder, rank}];
  if (known) {
    return known;
  }
  constexpr std::string_view kHint = "set SPILLWAY_EXECUTION_TRACE to a folder that can be written";
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return base::not_opened(folder, errno, kHint);
  }
  const std::string path = fmt::format("{}/trace.{}.et", folder, rank);
  net::UniqueFd fd(base::open_own_file(path.c_str(), base::Opening::kTruncate));
  if (!fd.valid()) {
    return base::not_opened(path, errno, kHint);
  }
  known.reset(new ExecutionTrace(std::move(fd), path, rank, world));
  return known;
}

ExecutionTrace::ExecutionTrace(net::UniqueFd fd, std::string path, std::uint32_t rank,
                               std::uint32_t world)
    : fd_(std::move(fd)), path_(std::move(path)), rank_(rank), world_(world), begun_(clock_.now()) {
  chakra::RankInfo info;
  info.rank = rank_;
  info.world = world_;
  encoder_.append(info, bytes_);
}

ExecutionTrace::~ExecutionTrace() {
  flush();
}

std::string ExecutionTrace::group_for(const Identity& identity) {
  const std::lock_guard lock(mutex_);
  const bool is_everybody = identity.world - identity.servers == world_;
  return is_everybody && !std::exchange(has_everybody_, true) ? "" : identity.communicator;
}

std::shared_ptr<RequestWatcher> ExecutionTrace::on_call(const collective::Operation& operation,
                                                        const collective::Group& group,
                                                        const std::string& name) {
  const base::Instant now = clock_.now();
  const std::lock_guard lock(mutex_);
  if (is_full_ ||
      (threads_.size() >= kMaxThreads && !threads_.contains(std::this_thread::get_id()))) {
    return nullptr;
  }
  if (first_id_ + nodes_.size() >= kMaxRecorded) {
    is_full_ = true;
    log_warn("the execution trace {} is full: it ends here", path_);
    return nullptr;
  }
  const auto [entry, is_new] = threads_.try_emplace(std::this_thread::get_id());
  Thread& thread = entry->second;
  if (is_new) {
    thread.last = now;
    thread.is_first = threads_.size() == 1;
  }
  add_computing(thread, now);
  Recorded recorded{node_of(operation, group, name), true};
  recorded.node.id = first_id_ + nodes_.size();
  recorded.node.start = now - begun_;
  recorded.node.data_deps = thread.after;
  const std::uint64_t id = recorded.node.id;
  nodes_.push_back(std::move(recorded));
  write_ready(/*all=*/false);
  return std::make_shared<Watcher>(shared_from_this(), id);
}

void ExecutionTrace::add_computing(Thread& thread, base::Instant now) {
  if (now <= thread.last && thread.after.size() <= 1) {
    return;
  }
  Recorded recorded;
  recorded.node.id = first_id_ + nodes_.size();
  recorded.node.name = "computing";
  recorded.node.kind = chakra::NodeKind::kCompute;
  recorded.node.on_host = !thread.is_first;
  recorded.node.start = thread.last - begun_;
  recorded.node.duration = std::max(base::Duration(), now - thread.last);
  recorded.node.data_deps = std::move(thread.after);
  thread.after = {recorded.node.id};
  thread.last = now;
  nodes_.push_back(std::move(recorded));
}

void ExecutionTrace::on_wait(std::uint64_t id, base::Instant began, base::Instant ended,
                             bool is_over) {
  const std::lock_guard lock(mutex_);
  const auto found = threads_.find(std::this_thread::get_id());
  if (found == threads_.end() || is_full_) {
    return;
  }
  Thread& thread = found->second;
  if (began > thread.last) {
    add_computing(thread, began);
  }
  thread.last = std::max(thread.last, ended);
  if (is_over) {
    thread.after.push_back(id);
  }
}

void ExecutionTrace::on_end(std::uint64_t id, base::Instant at) {
  const std::lock_guard lock(mutex_);
  if (id < first_id_) {
    return;  // already written, without its duration
  }
  Recorded& recorded = nodes_[id - first_id_];
  recorded.is_open = false;
  recorded.node.duration = std::max(base::Duration(), at - begun_ - recorded.node.start);
}

void ExecutionTrace::flush() {
  const std::lock_guard lock(mutex_);
  write_ready(/*all=*/true);
}

// Writes the finished nodes at the front, and unfinished ones too beyond kMostUnwritten.
void ExecutionTrace::write_ready(bool all) {
  while (!nodes_.empty() && (!nodes_.front().is_open || nodes_.size() > kMostUnwritten)) {
    encoder_.append(nodes_.front().node, bytes_);
    nodes_.pop_front();
    ++first_id_;
  }
  if (all || bytes_.size() >= kWrittenTogether) {
    write_out();
  }
}

void ExecutionTrace::write_out() {
  std::string_view rest = bytes_;
  while (!failed_ && !rest.empty()) {
    const ssize_t written = ::write(fd_.get(), rest.data(), rest.size());
    if (written > 0) {
      rest.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      failed_ = is_full_ = true;
      log_warn("cannot write the execution trace {}: {}: it ends here", path_,
               std::strerror(errno));
    }
  }
  bytes_.clear();
}

}  // namespace spillway::observe
