// SPDX-License-Identifier: Apache-2.0
#include "lab/network/host_plan.h"

#include <fmt/format.h>

#include "sim/scenario/scenario.h"
#include "switch/dataplane/admission.h"

namespace spillway::lab {
namespace {

base::Status check_limits(const scenario::Topology& topology, const PlanOptions& options) {
  if (options.mtu < kMinMtu || options.mtu > kMaxMtu) {
    return base::invalid_argument(
        fmt::format("MTU {} is out of range: Spillway's headers and a head worth sending need at "
                    "least {}, and a frame holds at most {}",
                    options.mtu, kMinMtu, kMaxMtu));
  }
  if (topology.hosts() > kMaxHosts) {
    return base::invalid_argument(fmt::format("{} hosts are too many for one machine: at most {}",
                                              topology.hosts(), kMaxHosts));
  }
  for (const scenario::Link& link : topology.links) {
    if (link.rate > kMaxRate) {
      return base::invalid_argument(fmt::format(
          "a link of {} Gb/s is too fast to emulate in real time: give a rate of at most {} Gb/s",
          link.rate.count() / 1'000'000'000, kMaxRate.count() / 1'000'000'000));
    }
  }
  return {};
}

net::SocketAddress address_of(const std::string& ipv4, std::uint16_t port) {
  // Generated text, so it parses.
  return net::SocketAddress::parse(fmt::format("{}:{}", ipv4, port)).value();
}

HostEntry host_entry(const scenario::Topology& topology, std::uint32_t index,
                     const PlanOptions& options) {
  const std::uint32_t number = index + 1;
  HostEntry host;
  host.name = topology.host_names[index];
  host.port_interface = fmt::format("port{}", index);
  host.mac = fmt::format("02:53:57:00:{:02x}:{:02x}", number >> 8, number & 0xff);
  host.ipv4 = fmt::format("10.77.{}.{}", number >> 8, number & 0xff);
  if (options.mtu >= kMinIpv6Mtu) {
    host.ipv6 = fmt::format("fd77::{:x}", number);
  }
  host.peer = address_of(host.ipv4, options.port);
  host.listen = host.peer;
  host.rate = topology.host_rate(index);
  return host;
}

std::uint32_t trim_bytes_of(const spillway_port_config& port) {
  return spillway_port_trims(&port) != 0 ? port.trim_bytes : 0;
}

}  // namespace

base::Result<HostPlan> make_host_plan(const scenario::Scenario& scenario,
                                      const PlanOptions& options) {
  const base::Result<scenario::Topology> topology = scenario::build_topology(scenario);
  if (!topology.ok()) {
    return topology.status();
  }
  if (base::Status status = check_limits(*topology, options); !status.ok()) {
    return status;
  }
  HostPlan plan;
  plan.mtu = options.mtu;
  plan.trim_bytes = trim_bytes_of(scenario.port);
  for (std::uint32_t index = 0; index < topology->hosts(); ++index) {
    plan.hosts.push_back(host_entry(*topology, index, options));
  }
  plan.master_address = plan.hosts.front().ipv4;
  return plan;
}

HostPlan on_loopback(HostPlan plan, const std::vector<net::SocketAddress>& peers,
                     const std::vector<net::SocketAddress>& listens) {
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    HostEntry& host = plan.hosts[i];
    host.ipv4 = "127.0.0.1";
    host.ipv6.clear();
    host.peer = peers[i];
    host.listen = listens[i];
  }
  plan.master_address = "127.0.0.1";
  return plan;
}

}  // namespace spillway::lab
