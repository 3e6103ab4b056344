// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "base/text.h"
#include "sim/scenario/directives.h"
#include "sim/scenario/topology.h"
#include "transport/message.h"

namespace spillway::scenario {
namespace {

base::Status at_place(std::string_view place, const base::Status& status) {
  return status.ok() ? status
                     : base::Status(status.code(), fmt::format("{}: {}", place, status.message()));
}

// Reads one setting before the others that depend on it.
base::Status read_first(const Directive& directive, std::string_view key, const ValueReader& read) {
  for (const KeyValue& given : directive.values) {
    if (given.key == key) {
      return read_values({directive.noun, directive.place, {given}}, {{key, read}});
    }
  }
  return {};
}

base::Status ignore(std::string_view /*text*/) {
  return {};
}

// ------------------------------------------------------------------ the nouns

base::Status read_seed(const Directive& directive, Scenario& scenario) {
  return read_values(directive, {{kBareKey, to_number(scenario.seed)}});
}

base::Status read_limit(const Directive& directive, Scenario& scenario) {
  return read_values(directive, {{kBareKey, to_duration(scenario.limit)}});
}

// The uplinks' rate, absolute or as a share of the hosts' rate.
ValueReader to_uplink_rate(TopologyOptions& topology) {
  return [&topology](std::string_view text) -> base::Status {
    if (const base::Result<base::BitRate> rate = base::parse_rate(text); rate.ok()) {
      topology.uplink_rate = *rate;
      return {};
    }
    const base::Result<double> share = base::parse_fraction(text);
    if (!share.ok() || *share <= 0.0) {
      return base::invalid_argument(fmt::format(
          "\"{}\" is neither a rate such as 40gbit nor a share of the hosts' rate above "
          "zero such as 50%",
          text));
    }
    topology.uplink_rate.reset();
    topology.uplink_share = *share;
    return {};
  };
}

base::BitRate uplink_rate_of(const TopologyOptions& topology) {
  const double share = topology.uplink_share * static_cast<double>(topology.rate.count());
  return topology.uplink_rate.value_or(base::bits_per_second(std::llround(share)));
}

base::Status read_topology(const Directive& directive, Scenario& scenario) {
  TopologyOptions& topology = scenario.topology;
  const base::Status status = read_values(
      directive,
      {{kBareKey, to_choice<TopologyKind>(topology.kind, {{"one-switch", TopologyKind::kOneSwitch},
                                                          {"leaf-spine", TopologyKind::kLeafSpine},
                                                          {"fat-tree", TopologyKind::kFatTree}})},
       {"file", to_text(topology.file)},
       {"hosts", to_number(topology.hosts, 1)},
       {"leaves", to_number(topology.leaves, 1)},
       {"spines", to_number(topology.spines, 1)},
       {"links", to_number(topology.links, 1)},
       {"k", to_number(topology.k, 2)},
       {"rate", to_rate(topology.rate)},
       {"uplink-rate", to_uplink_rate(topology)},
       {"mtu", to_number(topology.mtu, 1)},
       {"delay", to_duration(topology.delay)},
       {"spreading",
        to_choice<Spreading>(topology.spreading,
                             {{"flow", Spreading::kPerFlow}, {"packet", Spreading::kPerPacket}})}});
  if (!topology.file.empty()) {
    topology.kind = TopologyKind::kFile;
  }
  return status;
}

// `ecn` sets where marking begins, whatever the mode; in ECN mode marking is a step.
ValueReader to_marking_threshold(spillway_port_config& port) {
  return [&port](std::string_view text) -> base::Status {
    std::uint32_t bytes = 0;
    if (base::Status status = to_byte_count(bytes)(text); !status.ok()) {
      return status;
    }
    port.ecn_bytes = bytes;
    port.red_min_bytes = bytes;
    port.red_max_bytes = bytes;
    return {};
  };
}

// A queue that overflows before it marks would silently cripple protocols that rely on marks.
base::Status check_marks_are_reached(const Directive& directive, const spillway_port_config& port) {
  if (port.mode != SPILLWAY_PORT_ECN || port.red_min_bytes < port.queue_bytes) {
    return {};
  }
  return base::invalid_argument(
      fmt::format("{}: switch mode=ecn marks from {} bytes, but its queue holds {}: give a smaller "
                  "ecn=",
                  directive.place, port.red_min_bytes, port.queue_bytes));
}

base::Status read_switch(const Directive& directive, Scenario& scenario) {
  spillway_port_mode mode = SPILLWAY_PORT_SPILLWAY;
  const ValueReader read_mode =
      to_choice<spillway_port_mode>(mode, {{"drop-tail", SPILLWAY_PORT_DROP_TAIL},
                                           {"ecn", SPILLWAY_PORT_ECN},
                                           {"trim", SPILLWAY_PORT_TRIM},
                                           {"spillway", SPILLWAY_PORT_SPILLWAY}});
  if (base::Status status = read_first(directive, "mode", read_mode); !status.ok()) {
    return status;
  }
  spillway_port_config port = dataplane::default_port_config(mode);
  const ValueReader read_lengths =
      to_choice<std::uint8_t>(port.lengths, {{"fixed", SPILLWAY_LENGTHS_FIXED},
                                             {"udp-stale", SPILLWAY_LENGTHS_UDP_STALE},
                                             {"stale", SPILLWAY_LENGTHS_STALE}});
  const base::Status status =
      read_values(directive, {{"mode", ignore},
                              {"queue", to_byte_count(port.queue_bytes)},
                              {"control-queue", to_byte_count(port.control_queue_bytes)},
                              {"ecn", to_marking_threshold(port)},
                              {"red-min", to_byte_count(port.red_min_bytes)},
                              {"red-max", to_byte_count(port.red_max_bytes)},
                              {"red-probability", to_parts(port.red_max_percent, 100)},
                              {"early-drop", to_byte_count(port.early_drop_bytes)},
                              {"trim", to_byte_count(port.trim_bytes)},
                              {"lengths", read_lengths},
                              {"control-share", to_parts(port.control_share_percent, 100)},
                              {"priorities", to_number(port.priorities, 1, 8)}});
  if (!status.ok()) {
    return status;
  }
  scenario.port = port;
  if (base::Status valid = dataplane::validate(port); !valid.ok()) {
    return at_place(directive.place, valid);
  }
  return check_marks_are_reached(directive, port);
}

base::Status read_aggregate_line(const Directive& directive, Scenario& scenario) {
  Aggregation aggregation;
  const base::Status status = read_aggregation(directive, aggregation);
  scenario.aggregations.push_back(aggregation);
  return status;
}

base::Status read_fault(const Directive& directive, Scenario& scenario) {
  Fault fault;
  const base::Status status = read_values(
      directive, {{"kind", to_choice<FaultKind>(fault.kind, {{"loss", FaultKind::kLoss},
                                                             {"bursty", FaultKind::kBursty},
                                                             {"gray", FaultKind::kGray},
                                                             {"down", FaultKind::kDown},
                                                             {"duplicate", FaultKind::kDuplicate},
                                                             {"reorder", FaultKind::kReorder},
                                                             {"corrupt", FaultKind::kCorrupt},
                                                             {"host-death", FaultKind::kHostDeath},
                                                             {"skew", FaultKind::kClockSkew},
                                                             {"restart", FaultKind::kRestart}})},
                  {"link", to_text(fault.link)},
                  {"host", to_number(fault.host)},
                  {"switch", to_text(fault.switch_name)},
                  {"share", to_fraction(fault.share)},
                  {"from", to_instant(fault.from)},
                  {"until", to_instant(fault.until)},
                  {"delay", to_duration(fault.delay)},
                  {"burst", to_decimal(fault.burst_packets)},
                  {"ppm", to_decimal(fault.skew_ppm)}});
  if (!status.ok()) {
    return status;
  }
  scenario.faults.push_back(fault);
  return at_place(directive.place, validate(fault));
}

base::Status read_job_line(const Directive& directive, Scenario& scenario) {
  Job job;
  job.name = fmt::format("job{}", scenario.jobs.size() + 1);
  const base::Status status = read_job(directive, job);
  scenario.jobs.push_back(job);
  return status;
}

base::Status read_training_line(const Directive& directive, Scenario& scenario) {
  Training training;
  training.name = fmt::format("training{}", scenario.trainings.size() + 1);
  const base::Status status = read_training(directive, training);
  scenario.trainings.push_back(training);
  return status;
}

base::Status read_background_line(const Directive& directive, Scenario& scenario) {
  Job job;
  job.name = "background";
  const base::Status status = read_background(directive, job);
  scenario.jobs.push_back(job);
  return status;
}

base::Status read_tenant_line(const Directive& directive, Scenario& scenario) {
  Tenant tenant;
  const base::Status status = read_tenant(directive, tenant);
  scenario.tenants.push_back(tenant);
  return status;
}

base::Status read_port(const Directive& directive, Scenario& scenario) {
  PortLine port;
  port.place = directive.place;
  const base::Status status = read_values(directive, {{"host", to_text(port.host)},
                                                      {"interface", to_text(port.interface)},
                                                      {"listen", to_text(port.listen)},
                                                      {"deliver", to_text(port.deliver)}});
  scenario.ports.push_back(port);
  return status;
}

struct Noun {
  std::string_view name;
  base::Status (*read)(const Directive&, Scenario&);
  bool may_repeat;
};

constexpr std::array<Noun, 11> kNouns = {{{"seed", read_seed, false},
                                          {"limit", read_limit, false},
                                          {"topology", read_topology, false},
                                          {"switch", read_switch, false},
                                          {"aggregate", read_aggregate_line, true},
                                          {"job", read_job_line, true},
                                          {"training", read_training_line, true},
                                          {"background", read_background_line, true},
                                          {"fault", read_fault, true},
                                          {"tenant", read_tenant_line, true},
                                          {"port", read_port, true}}};

base::Status unknown_noun(const Directive& directive) {
  std::vector<std::string_view> known;
  for (const Noun& noun : kNouns) {
    known.push_back(noun.name);
  }
  return base::invalid_argument(fmt::format("{}: unknown directive '{}'; known are {}",
                                            directive.place, directive.noun, joined(known)));
}

base::Result<Scenario> interpret(const std::vector<Directive>& directives) {
  Scenario scenario;
  std::vector<std::string_view> seen;
  for (const Directive& directive : directives) {
    const auto noun = std::find_if(kNouns.begin(), kNouns.end(), [&directive](const Noun& known) {
      return known.name == directive.noun;
    });
    if (noun == kNouns.end()) {
      return unknown_noun(directive);
    }
    if (!noun->may_repeat && std::find(seen.begin(), seen.end(), noun->name) != seen.end()) {
      return base::invalid_argument(
          fmt::format("{}: a second '{}'", directive.place, directive.noun));
    }
    seen.push_back(noun->name);
    if (base::Status status = noun->read(directive, scenario); !status.ok()) {
      return status;
    }
  }
  return scenario;
}

base::Result<Topology> shape_of(const TopologyOptions& spec) {
  switch (spec.kind) {
    case TopologyKind::kLeafSpine:
      return leaf_spine({.hosts = spec.hosts,
                         .leaves = spec.leaves,
                         .spines = spec.spines,
                         .links = spec.links,
                         .host_rate = spec.rate,
                         .uplink_rate = uplink_rate_of(spec),
                         .delay = spec.delay});
    case TopologyKind::kFatTree:
      return fat_tree({.k = spec.k, .rate = spec.rate, .delay = spec.delay});
    case TopologyKind::kFile:
      return parse_topology(spec.file_text);
    case TopologyKind::kOneSwitch:
      break;
  }
  return one_switch({.hosts = spec.hosts, .rate = spec.rate, .delay = spec.delay});
}

}  // namespace

base::Result<Scenario> parse_scenario(std::string_view text,
                                      std::span<const std::string> overrides) {
  base::Result<std::vector<Directive>> directives = parse_directives(text);
  if (!directives.ok()) {
    return directives.status();
  }
  for (const std::string& change : overrides) {
    if (base::Status status = apply_override(change, directives.value()); !status.ok()) {
      return status;
    }
  }
  return interpret(*directives);
}

base::Result<Topology> build_topology(const Scenario& scenario) {
  if (scenario.topology.kind == TopologyKind::kFile && scenario.topology.file_text.empty()) {
    return base::invalid_argument(
        fmt::format("the topology file {} is empty or was not read", scenario.topology.file));
  }
  base::Result<Topology> topology = shape_of(scenario.topology);
  if (!topology.ok()) {
    return at_place("topology", topology.status());
  }
  topology.value().spreading = scenario.topology.spreading;
  topology.value().set_port_config(scenario.port);
  if (base::Status status = topology.value().set_aggregation(scenario.aggregations); !status.ok()) {
    return status;
  }
  return topology;
}

// ------------------------------------------------------------------ dilation

namespace {

base::Duration longer(base::Duration duration, double factor) {
  return base::nanoseconds(std::llround(static_cast<double>(duration.count()) * factor));
}

base::Instant later(base::Instant at, double factor) {
  return at == transport::kNever ? at : base::Instant(longer(at.since_zero(), factor));
}

base::BitRate slower(base::BitRate rate, double factor) {
  return base::bits_per_second(std::llround(static_cast<double>(rate.count()) / factor));
}

std::uint32_t longer_lease(std::uint32_t microseconds, double factor) {
  return static_cast<std::uint32_t>(std::min(microseconds * factor, double{UINT32_MAX}));
}

}  // namespace

bool can_be_dilated(const Scenario& scenario) {
  return scenario.topology.kind != TopologyKind::kFile;
}

Scenario dilated(Scenario scenario, double factor) {
  SPILLWAY_CHECK(factor == 1 || (can_be_dilated(scenario) && factor > 0));
  TopologyOptions& topology = scenario.topology;
  topology.rate = slower(topology.rate, factor);
  if (topology.uplink_rate) {
    topology.uplink_rate = slower(*topology.uplink_rate, factor);
  }
  topology.delay = longer(topology.delay, factor);
  for (Tenant& tenant : scenario.tenants) {
    tenant.rate = slower(tenant.rate, factor);
    tenant.on = longer(tenant.on, factor);
    tenant.off = longer(tenant.off, factor);
    tenant.start = later(tenant.start, factor);
  }
  for (Fault& fault : scenario.faults) {
    fault.from = later(fault.from, factor);
    fault.until = later(fault.until, factor);
    fault.delay = longer(fault.delay, factor);
  }
  for (Aggregation& aggregation : scenario.aggregations) {
    aggregation.config.lease_us = longer_lease(aggregation.config.lease_us, factor);
  }
  return scenario;
}

}  // namespace spillway::scenario
