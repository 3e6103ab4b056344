// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/parameter_server.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::scenario {
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
