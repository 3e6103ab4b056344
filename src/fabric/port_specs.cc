// SPDX-License-Identifier: Apache-2.0
#include "fabric/port_specs.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace spillway::fabric {
namespace {

base::Status bad(const sim::PortLine& line, std::string_view what) {
  return base::invalid_argument(fmt::format("{}: port: {}", line.place, what));
}

base::Result<net::SocketAddress> address(const sim::PortLine& line, std::string_view key,
                                         const std::string& text) {
  base::Result<net::SocketAddress> parsed = net::SocketAddress::parse(text);
  if (!parsed.ok()) {
    return bad(line, fmt::format("{}: {}", key, parsed.status().message()));
  }
  return parsed;
}

base::Result<PortSpec> spec_of(const sim::PortLine& line) {
  const bool is_relay = !line.listen.empty() && !line.deliver.empty() && line.interface.empty();
  const bool is_interface = !line.interface.empty() && line.listen.empty() && line.deliver.empty();
  if (!is_relay && !is_interface) {
    return bad(line, "give either interface=NAME, or listen=ADDRESS:PORT and deliver=ADDRESS:PORT");
  }
  PortSpec spec;
  spec.interface = line.interface;
  if (is_relay) {
    const auto listen = address(line, "listen", line.listen);
    const auto deliver = address(line, "deliver", line.deliver);
    if (!listen.ok() || !deliver.ok()) {
      return listen.ok() ? deliver.status() : listen.status();
    }
    spec.listen = *listen;
    spec.deliver = *deliver;
  }
  return spec;
}

}  // namespace

base::Result<std::vector<PortSpec>> port_specs(const sim::Scenario& scenario,
                                               const sim::Topology& topology) {
  std::vector<std::optional<PortSpec>> found(topology.hosts());
  for (const sim::PortLine& line : scenario.ports) {
    const auto host = std::ranges::find(topology.host_names, line.host);
    if (host == topology.host_names.end()) {
      return bad(line, fmt::format("there is no host '{}'; hosts are {} to {}", line.host,
                                   topology.host_names.front(), topology.host_names.back()));
    }
    std::optional<PortSpec>& place =
        found[static_cast<std::size_t>(host - topology.host_names.begin())];
    if (place) {
      return bad(line, fmt::format("a second one for host {}", line.host));
    }
    const base::Result<PortSpec> spec = spec_of(line);
    if (!spec.ok()) {
      return spec.status();
    }
    place = *spec;
  }
  std::vector<PortSpec> specs;
  for (sim::HostId host = 0; host < topology.hosts(); ++host) {
    if (!found[host]) {
      return base::invalid_argument(
          fmt::format("host {0} has no port: add `port host={0} interface=NAME`, or `port "
                      "host={0} listen=ADDRESS:PORT deliver=ADDRESS:PORT`",
                      topology.host_names[host]));
    }
    specs.push_back(*found[host]);
  }
  return specs;
}

}  // namespace spillway::fabric
