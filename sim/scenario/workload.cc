// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "sim/scenario/parameter_server.h"

namespace spillway::scenario {
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

}  // namespace spillway::scenario
