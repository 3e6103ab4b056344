// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"

namespace spillway::scenario {

// ------------------------------------------------------------------ networks

// ------------------------------------------------------------------ shapes and checks

namespace {

constexpr std::uint32_t kMaxHosts = 65'536;
constexpr std::uint32_t kMaxSwitches = 65'536;
constexpr std::uint32_t kMaxLinks = 1'000'000;
constexpr std::uint32_t kMaxFatTree = 64;  // 65,536 hosts

void name_nodes(std::string_view prefix, std::uint32_t count, std::vector<std::string>& names) {
  for (std::uint32_t i = 0; i < count; ++i) {
    names.push_back(fmt::format("{}{}", prefix, i));
  }
}

Link make_link(NodeId a, NodeId b, base::BitRate rate, base::Duration delay) {
  Link link;
  link.a = a;
  link.b = b;
  link.rate = rate;
  link.delay = delay;
  return link;
}

base::Result<Topology> validated(Topology topology) {
  base::Status status = validate(topology);
  if (!status.ok()) {
    return status;
  }
  return topology;
}

base::Status validate_names(const Topology& topology) {
  std::set<std::string_view> seen;
  for (NodeId node = 0; node < topology.nodes(); ++node) {
    if (!seen.insert(topology.node_name(node)).second) {
      return base::invalid_argument(
          fmt::format("two nodes are called {}", topology.node_name(node)));
    }
  }
  return {};
}

base::Status validate_link(const Topology& topology, const Link& link) {
  if (link.a >= topology.nodes() || link.b >= topology.nodes()) {
    return base::invalid_argument("a link's end is not a node");
  }
  const std::string name =
      fmt::format("link {} {}", topology.node_name(link.a), topology.node_name(link.b));
  if (link.a == link.b) {
    return base::invalid_argument(name + ": a link joins two different nodes");
  }
  if (link.a < topology.hosts() && link.b < topology.hosts()) {
    return base::invalid_argument(name + ": hosts are joined through a switch");
  }
  if (const base::Status rate = validate_rate(link.rate); !rate.ok()) {
    return base::invalid_argument(name + ": " + rate.message());
  }
  if (link.delay < base::Duration()) {
    return base::invalid_argument(name + ": the delay must not be below zero");
  }
  const base::Status port = dataplane::validate(link.port);
  return port.ok() ? port : base::invalid_argument(name + ": " + port.message());
}

base::Status validate_host_links(const Topology& topology) {
  std::vector<std::uint32_t> links(topology.hosts(), 0);
  for (const Link& link : topology.links) {
    if (std::min(link.a, link.b) < topology.hosts()) {
      ++links[std::min(link.a, link.b)];
    }
  }
  for (HostId host = 0; host < topology.hosts(); ++host) {
    if (links[host] != 1) {
      return base::invalid_argument(fmt::format("host {} has {} links; a host has exactly one",
                                                topology.host_names[host], links[host]));
    }
  }
  return {};
}

// Follows every link from host 0; fails if some host is not reached.
base::Status validate_connected(const Topology& topology) {
  std::vector<std::vector<NodeId>> neighbours(topology.nodes());
  for (const Link& link : topology.links) {
    neighbours[link.a].push_back(link.b);
    neighbours[link.b].push_back(link.a);
  }
  std::vector<bool> met(topology.nodes(), false);
  std::vector<NodeId> frontier = {0};
  met[0] = true;
  while (!frontier.empty()) {
    const NodeId node = frontier.back();
    frontier.pop_back();
    for (const NodeId neighbour : neighbours[node]) {
      if (!met[neighbour]) {
        met[neighbour] = true;
        frontier.push_back(neighbour);
      }
    }
  }
  for (HostId host = 0; host < topology.hosts(); ++host) {
    if (!met[host]) {
      return base::invalid_argument(fmt::format("there is no path from host {} to host {}",
                                                topology.host_names[0], topology.host_names[host]));
    }
  }
  return {};
}

base::Status validate_size(const Topology& topology) {
  if (topology.hosts() < 2 || topology.hosts() > kMaxHosts) {
    return base::invalid_argument(
        fmt::format("{} hosts: a network has 2 to {}", topology.hosts(), kMaxHosts));
  }
  if (topology.switch_names.size() > kMaxSwitches || topology.links.size() > kMaxLinks) {
    return base::invalid_argument(
        fmt::format("a network has at most {} switches and {} links", kMaxSwitches, kMaxLinks));
  }
  return {};
}

}  // namespace

void Topology::set_port_config(const spillway_port_config& port) {
  for (Link& link : links) {
    link.port = link.own_buffer ? with_buffer(port, link.port.queue_bytes) : port;
  }
}

base::Status Topology::set_aggregation(const std::vector<Aggregation>& lines) {
  adders.clear();
  std::vector<bool> is_used(lines.size(), false);
  for (std::uint32_t number = 0; number < switch_names.size(); ++number) {
    const Aggregation* found = nullptr;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (!lines[i].is_for(switch_names[number])) {
        continue;
      }
      if (found != nullptr) {
        return base::invalid_argument(fmt::format("{}: aggregate: {} says already how {} adds",
                                                  lines[i].place, found->place,
                                                  switch_names[number]));
      }
      found = &lines[i];
      is_used[i] = true;
    }
    if (found != nullptr) {
      adders.push_back({number, found->config, found->limits});
    }
  }
  const auto unused = std::ranges::find(is_used, false);
  if (unused == is_used.end()) {
    return {};
  }
  const Aggregation& line = lines[static_cast<std::size_t>(unused - is_used.begin())];
  return base::invalid_argument(fmt::format("{}: aggregate: there is no switch {}; switches are {}",
                                            line.place, line.switches,
                                            fmt::join(switch_names, ", ")));
}

spillway_port_config with_buffer(spillway_port_config port, std::uint32_t queue_bytes) {
  const auto scaled = [&](std::uint32_t threshold) {
    return static_cast<std::uint32_t>(std::uint64_t{threshold} * queue_bytes / port.queue_bytes);
  };
  port.ecn_bytes = scaled(port.ecn_bytes);
  port.red_min_bytes = scaled(port.red_min_bytes);
  port.red_max_bytes = scaled(port.red_max_bytes);
  port.early_drop_bytes = scaled(port.early_drop_bytes);
  port.queue_bytes = queue_bytes;
  return port;
}

base::BitRate Topology::host_rate(HostId host) const {
  return std::ranges::find_if(links,
                              [host](const Link& link) { return link.a == host || link.b == host; })
      ->rate;
}

base::Status validate_rate(base::BitRate rate) {
  if (rate < kMinRate || rate > kMaxRate) {
    return base::invalid_argument(fmt::format(
        "a rate of {} bit/s cannot be timed; rates are from 1kbit to 10tbit", rate.count()));
  }
  return {};
}

base::Status validate(const Topology& topology) {
  base::Status status = validate_size(topology);
  if (status.ok()) {
    status = validate_names(topology);
  }
  for (std::size_t i = 0; status.ok() && i < topology.links.size(); ++i) {
    status = validate_link(topology, topology.links[i]);
  }
  if (status.ok()) {
    status = validate_host_links(topology);
  }
  return status.ok() ? validate_connected(topology) : status;
}

base::Result<Topology> one_switch(const OneSwitchOptions& options) {
  if (options.hosts > kMaxHosts) {
    return base::invalid_argument(
        fmt::format("{} hosts: a network has 2 to {}", options.hosts, kMaxHosts));
  }
  Topology topology;
  name_nodes("host", options.hosts, topology.host_names);
  topology.switch_names.emplace_back("switch0");
  for (HostId host = 0; host < options.hosts; ++host) {
    topology.links.push_back(make_link(host, options.hosts, options.rate, options.delay));
  }
  return validated(std::move(topology));
}

base::Result<Topology> leaf_spine(const LeafSpineOptions& options) {
  if (options.leaves < 1 || options.spines < 1 || options.links < 1) {
    return base::invalid_argument(
        "leaf-spine needs at least one leaf, one spine and one link between each two");
  }
  if (options.hosts > kMaxHosts || options.hosts < options.leaves ||
      options.spines > kMaxSwitches || options.links > kMaxLinks ||
      std::uint64_t{options.leaves} * options.spines * options.links > kMaxLinks) {
    return base::invalid_argument(fmt::format(
        "leaf-spine of {} hosts, {} leaves, {} spines, {} links: at least a host "
        "per leaf, at most {} hosts and {} links",
        options.hosts, options.leaves, options.spines, options.links, kMaxHosts, kMaxLinks));
  }
  Topology topology;
  name_nodes("host", options.hosts, topology.host_names);
  name_nodes("leaf", options.leaves, topology.switch_names);
  name_nodes("spine", options.spines, topology.switch_names);
  const NodeId first_leaf = options.hosts;
  const NodeId first_spine = first_leaf + options.leaves;
  for (HostId host = 0; host < options.hosts; ++host) {
    const auto leaf =
        static_cast<std::uint32_t>(std::uint64_t{host} * options.leaves / options.hosts);
    topology.links.push_back(make_link(host, first_leaf + leaf, options.host_rate, options.delay));
  }
  for (std::uint32_t leaf = 0; leaf < options.leaves; ++leaf) {
    for (std::uint32_t i = 0; i < options.spines * options.links; ++i) {
      topology.links.push_back(make_link(first_leaf + leaf, first_spine + i / options.links,
                                         options.uplink_rate, options.delay));
    }
  }
  return validated(std::move(topology));
}

base::Result<Topology> fat_tree(const FatTreeOptions& options) {
  if (options.k < 2 || options.k % 2 != 0 || options.k > kMaxFatTree) {
    return base::invalid_argument(
        fmt::format("a fat tree's k is even, from 2 to {}, not {}", kMaxFatTree, options.k));
  }
  const std::uint32_t half = options.k / 2;
  const std::uint32_t per_layer = options.k * half;  // edge switches, and aggregation switches
  Topology topology;
  name_nodes("host", per_layer * half, topology.host_names);
  name_nodes("edge", per_layer, topology.switch_names);
  name_nodes("aggregation", per_layer, topology.switch_names);
  name_nodes("core", half * half, topology.switch_names);
  const NodeId first_edge = topology.hosts();
  const NodeId first_aggregation = first_edge + per_layer;
  const NodeId first_core = first_aggregation + per_layer;
  const auto link = [&](NodeId a, NodeId b) {
    topology.links.push_back(make_link(a, b, options.rate, options.delay));
  };
  for (HostId host = 0; host < topology.hosts(); ++host) {
    link(host, first_edge + host / half);
  }
  for (std::uint32_t i = 0; i < per_layer; ++i) {
    const std::uint32_t pod = i / half;
    for (std::uint32_t j = 0; j < half; ++j) {
      link(first_edge + i, first_aggregation + pod * half + j);
      link(first_aggregation + i, first_core + (i % half) * half + j);
    }
  }
  return validated(std::move(topology));
}

// ------------------------------------------------------------------ text

namespace {

using Words = std::vector<std::string_view>;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

Words split_words(std::string_view line) {
  Words words;
  line = line.substr(0, line.find('#'));
  std::size_t at = 0;
  while (at < line.size()) {
    if (is_space(line[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < line.size() && !is_space(line[end])) {
      ++end;
    }
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

class TopologyReader {
 public:
  base::Status read_line(std::string_view line) {
    const Words words = split_words(line);
    if (words.empty()) {
      return {};
    }
    if (words[0] == "host" || words[0] == "switch") {
      return read_node(words);
    }
    if (words[0] == "link") {
      return read_link(words);
    }
    return base::invalid_argument(
        fmt::format("\"{}\" is not known; lines begin with host, switch or link", words[0]));
  }

  // Assigns node numbers, which requires knowing all hosts.
  Topology finish() && {
    for (Link& link : topology_.links) {
      link.a = number(nodes_[link.a]);
      link.b = number(nodes_[link.b]);
    }
    return std::move(topology_);
  }

 private:
  struct Node {
    bool is_host = false;
    std::uint32_t index = 0;  // among hosts or switches
  };

  NodeId number(const Node& node) const {
    return node.is_host ? node.index : topology_.hosts() + node.index;
  }

  base::Status read_node(const Words& words) {
    if (words.size() != 2) {
      return base::invalid_argument(fmt::format("{} takes one name", words[0]));
    }
    const auto position = static_cast<std::uint32_t>(nodes_.size());
    if (!positions_.emplace(std::string(words[1]), position).second) {
      return base::invalid_argument(fmt::format("{} is declared twice", words[1]));
    }
    const bool is_host = words[0] == "host";
    std::vector<std::string>& names = is_host ? topology_.host_names : topology_.switch_names;
    nodes_.push_back({is_host, static_cast<std::uint32_t>(names.size())});
    names.emplace_back(words[1]);
    return {};
  }

  base::Status read_end(std::string_view name, NodeId& end) const {
    const auto found = positions_.find(name);
    if (found == positions_.end()) {
      return base::invalid_argument(
          fmt::format("{} is not declared; put `host {}` or `switch {}` above", name, name, name));
    }
    end = found->second;
    return {};
  }

  base::Status read_link(const Words& words) {
    if (words.size() < 3) {
      return base::invalid_argument("link takes two names, then rate=, delay= and buffer=");
    }
    Link link;
    base::Status status = read_end(words[1], link.a);
    if (status.ok()) {
      status = read_end(words[2], link.b);
    }
    for (std::size_t i = 3; status.ok() && i < words.size(); ++i) {
      status = read_value(words[i], link);
    }
    topology_.links.push_back(link);
    return status;
  }

  static base::Status read_value(std::string_view word, Link& link) {
    const std::size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
    if (key == "rate") {
      return store(base::parse_rate(value), link.rate);
    }
    if (key == "delay") {
      return store(base::parse_duration(value), link.delay);
    }
    if (key == "buffer") {
      return read_buffer(value, link);
    }
    return base::invalid_argument(
        fmt::format("\"{}\" is not known; a link has rate=, delay= and buffer=", key));
  }

  static base::Status read_buffer(std::string_view value, Link& link) {
    base::Bytes size;
    const base::Status status = store(base::parse_bytes(value), size);
    if (status.ok() && (size.count() < 1 || size.count() > SPILLWAY_MAX_QUEUE_BYTES)) {
      return base::invalid_argument(fmt::format("a buffer of {} is not from 1 byte to {} bytes",
                                                value, SPILLWAY_MAX_QUEUE_BYTES));
    }
    if (status.ok()) {
      link.port = with_buffer(link.port, static_cast<std::uint32_t>(size.count()));
      link.own_buffer = true;
    }
    return status;
  }

  template <typename T>
  static base::Status store(const base::Result<T>& parsed, T& out) {
    if (!parsed.ok()) {
      return parsed.status();
    }
    out = *parsed;
    return {};
  }

  Topology topology_;  // links' ends index nodes_ until finish()
  std::vector<Node> nodes_;
  std::map<std::string, std::uint32_t, std::less<>> positions_;
};

}  // namespace

base::Result<Topology> parse_topology(std::string_view text) {
  TopologyReader reader;
  for (std::uint32_t line = 1; !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    const base::Status status = reader.read_line(text.substr(0, end));
    if (!status.ok()) {
      return base::invalid_argument(fmt::format("line {}: {}", line, status.message()));
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  Topology topology = std::move(reader).finish();
  const base::Status status = validate(topology);
  if (!status.ok()) {
    return status;
  }
  return topology;
}

// ------------------------------------------------------------------ faults

namespace {

constexpr double kMaxSkewPpm = 100'000;  // 10%: far beyond any crystal

base::Status validate_skew(const Fault& fault) {
  if (!(std::abs(fault.skew_ppm) <= kMaxSkewPpm)) {
    return base::invalid_argument(
        fmt::format("a clock skew of {} ppm is beyond {} ppm", fault.skew_ppm, kMaxSkewPpm));
  }
  if (fault.from != base::Instant()) {
    return base::invalid_argument("a clock skew holds from the beginning; leave `from` at 0");
  }
  return {};
}

// Checks that the fault names its host, switch or link.
base::Status validate_place(const Fault& fault) {
  if (is_host_fault(fault.kind)) {
    return fault.host == kNoHost ? base::invalid_argument("this fault needs a host")
                                 : base::Status();
  }
  if (is_switch_fault(fault.kind)) {
    return fault.switch_name.empty() ? base::invalid_argument("this fault needs a switch")
                                     : base::Status();
  }
  return fault.link.empty() ? base::invalid_argument("this fault needs a link") : base::Status();
}

}  // namespace

bool is_host_fault(FaultKind kind) {
  return kind == FaultKind::kHostDeath || kind == FaultKind::kClockSkew;
}

bool is_switch_fault(FaultKind kind) {
  return kind == FaultKind::kRestart;
}

base::Status validate(const Fault& fault) {
  if (base::Status status = validate_place(fault); !status.ok()) {
    return status;
  }
  if (!(fault.share >= 0.0 && fault.share <= 1.0)) {
    return base::invalid_argument(fmt::format("a share of {} is not from 0 to 1", fault.share));
  }
  if (fault.kind == FaultKind::kBursty && !(fault.burst_packets >= 1.0)) {
    return base::invalid_argument(
        fmt::format("bursts of {} packets: at least 1", fault.burst_packets));
  }
  if (fault.delay < base::Duration()) {
    return base::invalid_argument("a delay must not be negative");
  }
  if (fault.from > fault.until) {
    return base::invalid_argument("a fault must not end before it begins");
  }
  return fault.kind == FaultKind::kClockSkew ? validate_skew(fault) : base::Status();
}

}  // namespace spillway::scenario
