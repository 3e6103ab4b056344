// SPDX-License-Identifier: Apache-2.0
#include "lab/link_setup.h"

#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "lab/kernel_setting.h"
#include "lab/link_batches.h"
#include "lab/namespaces.h"
#include "lab/tool_runner.h"

namespace spillway::lab {
namespace {

constexpr std::string_view kPackage = "iproute2";

struct Tools {
  std::string ip;
  std::string tc;
};

base::Result<Tools> find_tools() {
  const base::Result<std::string> ip = find_tool("ip", kPackage);
  if (!ip.ok()) {
    return ip.status();
  }
  const base::Result<std::string> tc = find_tool("tc", kPackage);
  if (!tc.ok()) {
    return tc.status();
  }
  return Tools{*ip, *tc};
}

// What a card would do to many packets at once stays undone, so that frames are what they would be
// on a wire. Drivers lack some of these; there is then nothing to switch off.
void switch_off_offloads(std::string_view interface) {
  const net::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (const std::uint32_t command : {ETHTOOL_SGRO, ETHTOOL_SGSO, ETHTOOL_STSO, ETHTOOL_STXCSUM}) {
    ethtool_value value = {.cmd = command, .data = 0};
    ifreq request = {};
    interface.copy(request.ifr_name, IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char*>(&value);
    (void)::ioctl(socket.get(), SIOCETHTOOL, &request);
  }
}

// The kernel's own chatter (neighbour discovery, multicast reports) must not load the fabric.
void silence_ipv6() {
  for (const char* scope : {"all", "default"}) {
    (void)write_setting(fmt::format("/proc/sys/net/ipv6/conf/{}/disable_ipv6", scope), "1");
  }
}

base::Status choose_congestion_control(const std::string& tcp) {
  const base::Status status = write_setting("/proc/sys/net/ipv4/tcp_congestion_control", tcp);
  return status.ok()
             ? status
             : base::Status(status.code(),
                            status.message() +
                                "; namespaces may choose what "
                                "net.ipv4.tcp_allowed_congestion_control of the machine lists");
}

base::Status set_up_host(const HostPlan& plan, std::size_t index, const Tools& tools,
                         const std::string& tcp, bool& paces) {
  if (base::Status status = run_tool(tools.ip, {"-batch", "-"}, host_links_batch(plan, index));
      !status.ok()) {
    return status;
  }
  switch_off_offloads(kHostInterface);
  // The first refusal says that this kernel has no token bucket: no need to ask again.
  if (paces) {
    paces = run_tool(tools.tc, {"-batch", "-"}, host_shaping_batch(plan, index)).ok();
  }
  return tcp.empty() ? base::Status() : choose_congestion_control(tcp);
}

base::Status make_pairs(const HostPlan& plan, const Tools& tools, LinkSetup& setup) {
  std::vector<int> fds;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    base::Result<net::UniqueFd> made = make_network_namespace();
    if (!made.ok()) {
      return made.status();
    }
    setup.host_namespaces.push_back(std::move(made).value());
    fds.push_back(setup.host_namespaces.back().get());
  }
  silence_ipv6();
  const base::Status status =
      run_tool(tools.ip, {"-batch", "-"}, fabric_links_batch(plan, fds), fds);
  for (const HostEntry& host : plan.hosts) {
    switch_off_offloads(host.port_interface);
  }
  return status;
}

}  // namespace

base::Status check_congestion_control(const std::string& tcp) {
  std::ifstream file("/proc/sys/net/ipv4/tcp_available_congestion_control");
  const std::vector<std::string> known{std::istream_iterator<std::string>(file), {}};
  if (tcp.empty() || std::find(known.begin(), known.end(), tcp) != known.end()) {
    return {};
  }
  return base::invalid_argument(
      fmt::format("TCP congestion control '{}' is not available on this machine; available are {} "
                  "(net.ipv4.tcp_available_congestion_control)",
                  tcp, fmt::join(known, ", ")));
}

base::Status set_up_port_queues(const HostPlan& plan, const spillway_port_config& port) {
  const base::Result<Tools> tools = find_tools();
  if (!tools.ok()) {
    return tools.status();
  }
  std::string batch;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    batch += port_queues_batch(plan, i, port);
  }
  return run_tool(tools->tc, {"-batch", "-"}, batch);
}

base::Result<LinkSetup> set_up_links(const HostPlan& plan, const std::string& tcp) {
  const base::Result<Tools> tools = find_tools();
  if (!tools.ok()) {
    return tools.status();
  }
  LinkSetup setup;
  if (base::Status status = make_pairs(plan, *tools, setup); !status.ok()) {
    return status;
  }
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    const base::Status status = in_network_namespace(setup.host_namespaces[i].get(), [&] {
      return set_up_host(plan, i, *tools, tcp, setup.hosts_pace);
    });
    if (!status.ok()) {
      return status;
    }
  }
  return setup;
}

}  // namespace spillway::lab
