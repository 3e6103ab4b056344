// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/random.h"

namespace spillway::scenario {

// ------------------------------------------------------------------ patterns

namespace {

constexpr std::array<std::string_view, 6> kPatternNames = {
    "permutation", "incast", "all-to-all", "parameter-server", "ring", "background"};

Flow flow_between(const PatternOptions& options, std::uint32_t from, std::uint32_t to) {
  Flow flow = options.flow;
  flow.from = options.first_host + from;
  flow.to = options.first_host + to;
  flow.bytes = options.bytes;
  flow.message.source = static_cast<std::uint16_t>(flow.from);
  flow.message.phase = wire::Phase::kPointToPoint;
  return flow;
}

// A random order; each host sends to the next one in it, so no host sends to itself.
std::vector<std::uint32_t> random_order(std::uint32_t hosts, std::uint64_t key) {
  std::vector<std::uint32_t> order(hosts);
  std::iota(order.begin(), order.end(), 0U);
  base::RandomSequence random(key);
  for (std::uint32_t i = hosts; i > 1; --i) {
    std::swap(order[i - 1], order[random.next_below(i)]);
  }
  return order;
}

std::vector<Flow> permutation_flows(const PatternOptions& options, std::uint32_t step) {
  const std::vector<std::uint32_t> order =
      random_order(options.hosts, base::derive_key(options.seed, {step, 0, 0, 0}));
  std::vector<Flow> flows;
  for (std::uint32_t i = 0; i < options.hosts; ++i) {
    flows.push_back(flow_between(options, order[i], order[(i + 1) % options.hosts]));
  }
  return flows;
}

std::vector<Flow> incast_flows(const PatternOptions& options) {
  const std::uint32_t senders = options.senders == 0 ? options.hosts - 1 : options.senders;
  std::vector<Flow> flows;
  for (std::uint32_t i = 1; i <= senders; ++i) {
    flows.push_back(flow_between(options, i, 0));
  }
  return flows;
}

// In rounds in which every host receives from one other; else all would begin with the same
// receiver.
std::vector<Flow> all_to_all_flows(const PatternOptions& options) {
  std::vector<Flow> flows;
  for (std::uint32_t shift = 1; shift < options.hosts; ++shift) {
    for (std::uint32_t i = 0; i < options.hosts; ++i) {
      flows.push_back(flow_between(options, i, (i + shift) % options.hosts));
      flows.back().message.signature = static_cast<std::uint16_t>(shift);
    }
  }
  return flows;
}

std::vector<Flow> flows_of_step(const PatternOptions& options, std::uint32_t step) {
  switch (options.kind) {
    case PatternKind::kIncast:
      return incast_flows(options);
    case PatternKind::kAllToAll:
      return all_to_all_flows(options);
    default:
      return permutation_flows(options, step);
  }
}

// For patterns without order within a step: a step begins when the one before it has ended.
Workload plan_steps(const PatternOptions& options) {
  Workload workload;
  for (std::uint32_t step = 0; step < options.steps; ++step) {
    for (Flow& flow : flows_of_step(options, step)) {
      flow.message.operation = step;
      workload.flows.push_back({.flow = flow,
                                .earliest = options.start,
                                .group = step,
                                .after_group = step == 0 ? kNoGroup : step - 1});
    }
  }
  workload.groups = options.steps;
  return workload;
}

// One group per flow: a host sends next what it has just received.
Workload plan_ring(const PatternOptions& options) {
  Workload workload;
  const std::uint32_t hosts = options.hosts;
  const std::uint32_t rounds = options.steps * 2 * (hosts - 1);
  for (std::uint32_t round = 0; round < rounds; ++round) {
    for (std::uint32_t i = 0; i < hosts; ++i) {
      Flow flow = flow_between(options, i, (i + 1) % hosts);
      flow.bytes = std::max<std::uint64_t>(options.bytes / hosts, 1);
      flow.message.operation = round;
      const std::uint32_t received_in = (round - 1) * hosts + (i + hosts - 1) % hosts;
      workload.flows.push_back({.flow = flow,
                                .earliest = options.start,
                                .group = round * hosts + i,
                                .after_group = round == 0 ? kNoGroup : received_in});
    }
  }
  workload.groups = rounds * hosts;
  return workload;
}

// ------------------------------------------------------------------ background

double mean_bytes(const PatternOptions& options) {
  const auto least = static_cast<double>(options.bytes_min);
  const auto most = static_cast<double>(options.bytes_max);
  return most > least ? (most - least) / std::log(most / least) : least;
}

std::uint64_t random_bytes(const PatternOptions& options, base::RandomSequence& random) {
  const auto least = static_cast<double>(options.bytes_min);
  const double ratio = static_cast<double>(options.bytes_max) / least;
  return static_cast<std::uint64_t>(least * std::exp(random.next_unit() * std::log(ratio)));
}

// Maps time within bursts to time of the run.
base::Instant arrival_time(const PatternOptions& options, double active_ns) {
  const base::Duration active(static_cast<std::int64_t>(active_ns));
  if (options.off == base::Duration()) {
    return options.start + active;
  }
  const std::int64_t bursts = active.count() / options.on.count();
  return options.start + active + options.off * bursts;
}

Workload plan_background(const PatternOptions& options) {
  Workload workload;
  workload.is_background = true;
  base::RandomSequence random(options.seed);
  const double bytes_per_ns =
      options.load * options.hosts * static_cast<double>(options.link_rate.count()) / 8e9;
  const double mean_gap_ns = mean_bytes(options) / bytes_per_ns;
  double active_ns = 0.0;
  while (workload.flows.size() < kMaxFlows) {
    active_ns += -std::log(1.0 - random.next_unit()) * mean_gap_ns;
    const base::Instant arrival = arrival_time(options, active_ns);
    if (arrival >= options.until) {
      break;
    }
    const auto from = static_cast<std::uint32_t>(random.next_below(options.hosts));
    const auto other = static_cast<std::uint32_t>(random.next_below(options.hosts - 1));
    Flow flow = flow_between(options, from, other < from ? other : other + 1);
    flow.bytes = random_bytes(options, random);
    flow.message.operation = static_cast<std::uint32_t>(workload.flows.size());
    workload.flows.push_back({.flow = flow, .earliest = arrival});
  }
  return workload;
}

// ------------------------------------------------------------------ checks

base::Status check_background(const PatternOptions& options) {
  if (options.load <= 0.0 || options.load > 1.0) {
    return base::invalid_argument("background needs a load above 0 and up to 100%");
  }
  if (options.bytes_min == 0 || options.bytes_min > options.bytes_max) {
    return base::invalid_argument("background needs 0 < bytes-min <= bytes-max");
  }
  if (options.until <= options.start) {
    return base::invalid_argument("background needs an until= after its start");
  }
  if (options.off > base::Duration() && options.on <= base::Duration()) {
    return base::invalid_argument("background with off= needs on= above zero");
  }
  return {};
}

// An upper bound; a double, so that it cannot overflow.
double flow_count(const PatternOptions& options) {
  const double hosts = options.hosts;
  switch (options.kind) {
    case PatternKind::kAllToAll:
      return options.steps * hosts * hosts;
    case PatternKind::kRing:
      return options.steps * 2.0 * hosts * hosts;
    case PatternKind::kParameterServer:
      return 2.0 * options.steps * hosts * options.servers * options.layers;
    default:
      return options.steps * hosts;
  }
}

base::Status check_pattern(const PatternOptions& options) {
  if (options.hosts < 2) {
    return base::invalid_argument(fmt::format("{} needs at least 2 hosts, not {}",
                                              pattern_name(options.kind), options.hosts));
  }
  if (options.bytes == 0) {
    return base::invalid_argument("flows of 0 bytes make no sense: give bytes=");
  }
  if (options.steps == 0) {
    return base::invalid_argument("steps must be at least 1");
  }
  if (options.senders >= options.hosts) {
    return base::invalid_argument(fmt::format("incast from {} senders needs {} hosts, not {}",
                                              options.senders, options.senders + 1, options.hosts));
  }
  if (flow_count(options) > static_cast<double>(kMaxFlows)) {
    return {base::StatusCode::kLimitExceeded,
            fmt::format("more than {} flows: use fewer hosts, steps or layers", kMaxFlows)};
  }
  return options.kind == PatternKind::kBackground ? check_background(options) : base::Status();
}

}  // namespace

std::string_view pattern_name(PatternKind kind) {
  return kPatternNames[static_cast<std::size_t>(kind)];
}

base::Result<Workload> plan_workload(const PatternOptions& options) {
  if (base::Status status = check_pattern(options); !status.ok()) {
    return status;
  }
  switch (options.kind) {
    case PatternKind::kParameterServer:
      return plan_parameter_server(options);
    case PatternKind::kRing:
      return plan_ring(options);
    case PatternKind::kBackground:
      return plan_background(options);
    default:
      return plan_steps(options);
  }
}

// ------------------------------------------------------------------ the parameter-server pattern

namespace {

std::uint32_t worker_count(const PatternOptions& options) {
  return options.workers == 0 ? options.hosts - options.servers : options.workers;
}

class Planner {
 public:
  explicit Planner(const PatternOptions& options)
      : options_(options),
        hosts_(place_parameter_servers(options)),
        workers_(static_cast<std::uint32_t>(hosts_.workers.size())),
        servers_(static_cast<std::uint32_t>(hosts_.servers.size())) {}

  Workload plan() {
    for (std::uint32_t step = 0; step < options_.steps; ++step) {
      for (std::uint32_t worker = 0; worker < workers_; ++worker) {
        plan_worker(step, worker);
      }
    }
    workload_.groups = options_.steps * groups_per_step();
    return std::move(workload_);
  }

 private:
  std::uint32_t groups_per_step() const { return options_.layers * servers_ + workers_; }
  std::uint32_t shard_group(std::uint32_t step, std::uint32_t layer, std::uint32_t server) const {
    return step * groups_per_step() + layer * servers_ + server;
  }
  std::uint32_t worker_group(std::uint32_t step, std::uint32_t worker) const {
    return step * groups_per_step() + options_.layers * servers_ + worker;
  }

  // Back layers are computed first, so they are also planned first.
  void plan_worker(std::uint32_t step, std::uint32_t worker) {
    for (std::uint32_t layer = options_.layers; layer-- > 0;) {
      if (options_.grouped) {
        plan_shard(step, worker, layer, worker * servers_ / workers_);
        continue;
      }
      // Each worker begins with another server: if all began with the first, every layer would be
      // an incast.
      for (std::uint32_t i = 0; i < servers_; ++i) {
        plan_shard(step, worker, layer, (worker + i) % servers_);
      }
    }
  }

  void plan_shard(std::uint32_t step, std::uint32_t worker, std::uint32_t layer,
                  std::uint32_t server) {
    Flow push = options_.flow;
    push.from = hosts_.workers[worker];
    push.to = hosts_.servers[server];
    push.bytes = shard_bytes(layer, server);
    push.priority = layer_priority(layer);
    push.message.operation = step;
    push.message.signature = static_cast<std::uint16_t>(layer);
    push.message.piece = static_cast<std::uint16_t>(server);
    push.message.source = static_cast<std::uint16_t>(push.from);
    push.message.phase = wire::Phase::kReduce;
    Flow pull = push;
    std::swap(pull.from, pull.to);
    pull.message.source = static_cast<std::uint16_t>(pull.from);  // identifies the shard as well
    pull.message.piece = static_cast<std::uint16_t>(worker);
    pull.message.phase = wire::Phase::kGather;
    const std::uint32_t shard_done = shard_group(step, layer, server);
    workload_.flows.push_back(
        {.flow = push,
         .earliest = options_.start,
         .delay = computed_after(layer),
         .group = shard_done,
         .after_group = step == 0 ? kNoGroup : worker_group(step - 1, worker)});
    workload_.flows.push_back({.flow = pull,
                               .earliest = options_.start,
                               .group = worker_group(step, worker),
                               .after_group = shard_done});
  }

  std::uint64_t shard_bytes(std::uint32_t layer, std::uint32_t server) const {
    const std::uint64_t whole = part(options_.bytes, options_.layers, layer);
    return std::max<std::uint64_t>(options_.grouped ? whole : part(whole, servers_, server), 1);
  }

  // The index-th of `parts` nearly equal parts.
  static std::uint64_t part(std::uint64_t whole, std::uint32_t parts, std::uint32_t index) {
    return whole / parts + (index < whole % parts ? 1 : 0);
  }

  std::uint8_t layer_priority(std::uint32_t layer) const {
    constexpr std::uint32_t kUrgent = SPILLWAY_PRIORITIES - 1;
    return options_.layers == 1
               ? options_.flow.priority
               : static_cast<std::uint8_t>(kUrgent - layer * kUrgent / (options_.layers - 1));
  }

  base::Duration computed_after(std::uint32_t layer) const {
    return options_.compute * (options_.layers - layer) / options_.layers;
  }

  const PatternOptions& options_;
  ParameterServerHosts hosts_;
  std::uint32_t workers_;
  std::uint32_t servers_;
  Workload workload_;
};

base::Status check_parameter_server(const PatternOptions& options) {
  if (options.servers == 0 || options.servers >= options.hosts) {
    return base::invalid_argument(
        fmt::format("parameter-server on {} hosts needs 1 to {} servers, not {}", options.hosts,
                    options.hosts - 1, options.servers));
  }
  const std::uint64_t needed = std::uint64_t{worker_count(options)} + options.servers;
  if (needed > options.hosts) {
    return base::invalid_argument(fmt::format("{} workers and {} servers need {} hosts, not {}",
                                              options.workers, options.servers, needed,
                                              options.hosts));
  }
  if (options.layers == 0 || options.layers > UINT16_MAX) {
    return base::invalid_argument(
        fmt::format("layers must be 1 to {}, not {}", UINT16_MAX, options.layers));
  }
  if (options.grouped && options.servers > worker_count(options)) {
    return base::invalid_argument("grouped servers need at least a worker each");
  }
  return {};
}

}  // namespace

ParameterServerHosts place_parameter_servers(const PatternOptions& options) {
  const std::uint32_t workers = worker_count(options);
  const std::uint64_t used = std::uint64_t{workers} + options.servers;
  ParameterServerHosts hosts;
  for (std::uint64_t i = 0; i < used; ++i) {
    const bool serves = (i + 1) * options.servers / used > i * options.servers / used;
    const HostId host = options.first_host + static_cast<HostId>(i);
    (serves ? hosts.servers : hosts.workers).push_back(host);
  }
  return hosts;
}

base::Result<Workload> plan_parameter_server(const PatternOptions& options) {
  if (base::Status status = check_parameter_server(options); !status.ok()) {
    return status;
  }
  return Planner(options).plan();
}

}  // namespace spillway::scenario
