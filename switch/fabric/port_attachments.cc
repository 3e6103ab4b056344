// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/port_attachments.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace spillway::fabric {
namespace {

base::Status bad(const scenario::PortLine& line, std::string_view what) {
  return base::invalid_argument(fmt::format("{}: port: {}", line.place, what));
}

base::Result<net::SocketAddress> address(const scenario::PortLine& line, std::string_view key,
                                         const std::string& text) {
  base::Result<net::SocketAddress> parsed = net::SocketAddress::parse(text);
  if (!parsed.ok()) {
    return bad(line, fmt::format("{}: {}", key, parsed.status().message()));
  }
  return parsed;
}

base::Result<PortAttachment> attachment_of(const scenario::PortLine& line) {
  const bool is_relay = !line.listen.empty() && !line.deliver.empty() && line.interface.empty();
  const bool is_interface = !line.interface.empty() && line.listen.empty() && line.deliver.empty();
  if (!is_relay && !is_interface) {
    return bad(line, "give either interface=NAME, or listen=ADDRESS:PORT and deliver=ADDRESS:PORT");
  }
  PortAttachment attachment;
  attachment.interface = line.interface;
  if (is_relay) {
    const auto listen = address(line, "listen", line.listen);
    const auto deliver = address(line, "deliver", line.deliver);
    if (!listen.ok() || !deliver.ok()) {
      return listen.ok() ? deliver.status() : listen.status();
    }
    attachment.listen = *listen;
    attachment.deliver = *deliver;
  }
  return attachment;
}

}  // namespace

base::Result<std::vector<PortAttachment>> port_attachments(const scenario::Scenario& scenario,
                                                           const scenario::Topology& topology) {
  std::vector<std::optional<PortAttachment>> found(topology.hosts());
  for (const scenario::PortLine& line : scenario.ports) {
    const auto host = std::ranges::find(topology.host_names, line.host);
    if (host == topology.host_names.end()) {
      return bad(line, fmt::format("there is no host '{}'; hosts are {} to {}", line.host,
                                   topology.host_names.front(), topology.host_names.back()));
    }
    std::optional<PortAttachment>& place =
        found[static_cast<std::size_t>(host - topology.host_names.begin())];
    if (place) {
      return bad(line, fmt::format("a second one for host {}", line.host));
    }
    const base::Result<PortAttachment> attachment = attachment_of(line);
    if (!attachment.ok()) {
      return attachment.status();
    }
    place = *attachment;
  }
  std::vector<PortAttachment> attachments;
  for (scenario::HostId host = 0; host < topology.hosts(); ++host) {
    if (!found[host]) {
      return base::invalid_argument(
          fmt::format("host {0} has no port: add `port host={0} interface=NAME`, or `port "
                      "host={0} listen=ADDRESS:PORT deliver=ADDRESS:PORT`",
                      topology.host_names[host]));
    }
    attachments.push_back(*found[host]);
  }
  return attachments;
}

}  // namespace spillway::fabric
