// SPDX-License-Identifier: Apache-2.0
#include "lab/network/links.h"

#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "lab/network/isolation.h"
#include "sim/scenario/scenario.h"
#include "switch/dataplane/admission.h"
#include "wire/packet.h"

namespace spillway::lab {

// ------------------------------------------------------------------ hosts

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

namespace {

constexpr std::string_view kPackage = "iproute2";
// Networks of all hosts' addresses (links.h).
constexpr std::string_view kIpv4Network = "10.77.0.0/16";
constexpr std::string_view kIpv6Network = "fd77::/64";
constexpr std::int64_t kMinClassRate = 8'000;  // bit/s: what a class is guaranteed
constexpr int kLastRank = 7;
// Holds whatever the switch admits: the switch alone decides about drops.
constexpr std::int64_t kQueueLimit = 2LL * SPILLWAY_MAX_QUEUE_BYTES;

std::int64_t bytes_in(base::BitRate rate, base::Duration time) {
  return rate.count() / 8 * (time.count() / 1'000) / 1'000'000;
}

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

// Turns off what a card would do to many packets at once, so that frames are as on a wire. Drivers
// that lack one of these refuse; that is ignored.
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

// The kernel's own traffic (neighbour discovery, multicast reports) must not load the fabric.
void disable_ipv6() {
  for (const char* scope : {"all", "default"}) {
    (void)write_proc_file(fmt::format("/proc/sys/net/ipv6/conf/{}/disable_ipv6", scope), "1");
  }
}

// The routes decide. The namespace's default is set if possible, for programs that query it. It can
// only be one that the machine's net.ipv4.tcp_allowed_congestion_control lists.
base::Status choose_congestion_control(const HostPlan& plan, std::size_t index, const Tools& tools,
                                       const std::string& tcp) {
  (void)write_proc_file("/proc/sys/net/ipv4/tcp_congestion_control", tcp);
  return run_tool(tools.ip, {"-batch", "-"}, congestion_control_batch(plan, index, tcp));
}

base::Status set_up_host(const HostPlan& plan, std::size_t index, const Tools& tools,
                         const std::string& tcp, bool& paces) {
  if (base::Status status = run_tool(tools.ip, {"-batch", "-"}, host_links_batch(plan, index));
      !status.ok()) {
    return status;
  }
  switch_off_offloads(kHostInterface);
  // A refusal means that this kernel has no token bucket, so later hosts do not try again.
  if (paces) {
    paces = run_tool(tools.tc, {"-batch", "-"}, host_shaping_batch(plan, index)).ok();
  }
  return tcp.empty() ? base::Status() : choose_congestion_control(plan, index, tools, tcp);
}

base::Status make_pairs(const HostPlan& plan, const Tools& tools, HostLinks& links) {
  std::vector<int> fds;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    base::Result<net::UniqueFd> made = make_network_namespace();
    if (!made.ok()) {
      return made.status();
    }
    links.host_namespaces.push_back(std::move(made).value());
    fds.push_back(links.host_namespaces.back().get());
  }
  disable_ipv6();
  const base::Status status =
      run_tool(tools.ip, {"-batch", "-"}, fabric_links_batch(plan, fds), fds);
  for (const HostEntry& host : plan.hosts) {
    switch_off_offloads(host.port_interface);
  }
  return status;
}

}  // namespace

std::string fabric_links_batch(const HostPlan& plan, const std::vector<int>& namespace_fds) {
  std::string batch = "link set dev lo up\n";
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    const HostEntry& host = plan.hosts[i];
    // One segment each, so that a frame on a veth is as on a wire.
    batch += fmt::format(
        "link add name {} mtu {} gso_max_segs 1 type veth peer name {} mtu {} address {} "
        "gso_max_segs 1 netns /proc/self/fd/{}\n",
        host.port_interface, plan.mtu, kHostInterface, plan.mtu, host.mac, namespace_fds[i]);
    batch += fmt::format("link set dev {} addrgenmode none\n", host.port_interface);
    batch += fmt::format("link set dev {} up\n", host.port_interface);
  }
  return batch;
}

std::string host_links_batch(const HostPlan& plan, std::size_t index) {
  const HostEntry& own = plan.hosts[index];
  std::string batch = "link set dev lo up\n";
  batch += fmt::format("link set dev {} addrgenmode none\n", kHostInterface);
  batch += fmt::format("link set dev {} up\n", kHostInterface);
  batch += fmt::format("address add {}/16 dev {}\n", own.ipv4, kHostInterface);
  if (!own.ipv6.empty()) {
    batch += fmt::format("address add {}/64 dev {} nodad\n", own.ipv6, kHostInterface);
  }
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    const HostEntry& other = plan.hosts[i];
    if (i == index) {
      continue;
    }
    for (const std::string& address : {other.ipv4, other.ipv6}) {
      if (!address.empty()) {
        batch += fmt::format("neighbour add {} lladdr {} dev {} nud permanent\n", address,
                             other.mac, kHostInterface);
      }
    }
  }
  return batch;
}

std::string congestion_control_batch(const HostPlan& plan, std::size_t index,
                                     const std::string& tcp) {
  const HostEntry& own = plan.hosts[index];
  std::string batch =
      fmt::format("route change {} dev {} proto kernel scope link src {} congctl {}\n",
                  kIpv4Network, kHostInterface, own.ipv4, tcp);
  if (!own.ipv6.empty()) {
    batch += fmt::format("route replace {} dev {} proto kernel metric 256 congctl {}\n",
                         kIpv6Network, kHostInterface, tcp);
  }
  return batch;
}

std::string host_shaping_batch(const HostPlan& plan, std::size_t index) {
  const base::BitRate rate = plan.hosts[index].rate;
  const std::int64_t burst = std::max<std::int64_t>(2 * (plan.mtu + SPILLWAY_ETHERNET_HEADER),
                                                    bytes_in(rate, base::microseconds(200)));
  const std::int64_t limit =
      std::max<std::int64_t>(1'000'000, bytes_in(rate, base::milliseconds(10)));
  return fmt::format("qdisc add dev {} root tbf rate {}bit overhead {} burst {} limit {}\n",
                     kHostInterface, rate.count(), SPILLWAY_WIRE_OVERHEAD, burst, limit);
}

std::string port_queues_batch(const HostPlan& plan, std::size_t index,
                              const spillway_port_config& port) {
  const HostEntry& host = plan.hosts[index];
  const std::int64_t rate = host.rate.count();
  const std::int64_t frame = plan.mtu + SPILLWAY_ETHERNET_HEADER;
  // Makes up for late timers; the switch's decisions do not depend on it.
  const std::int64_t burst = std::max(2 * frame, bytes_in(host.rate, base::milliseconds(1)));
  const std::string common = fmt::format("ceil {}bit burst {} cburst {} quantum {} overhead {}",
                                         rate, burst, burst, 2 * frame, SPILLWAY_WIRE_OVERHEAD);
  const std::string add = fmt::format("add dev {}", host.port_interface);
  std::string batch =
      fmt::format("qdisc {} root handle {:x}: htb default 1\n", add, kPortQueuesMajor);
  batch += fmt::format("class {} parent {:x}: classid {:x}:ff htb rate {}bit {}\n", add,
                       kPortQueuesMajor, kPortQueuesMajor, rate, common);
  for (int queue = 0; queue < SPILLWAY_QUEUES; ++queue) {
    const bool is_control = queue == SPILLWAY_CONTROL_QUEUE;
    const std::int64_t own = is_control ? rate * port.control_share_percent / 100 : kMinClassRate;
    const int rank = is_control ? kLastRank : SPILLWAY_DATA_QUEUES - 1 - queue;
    batch += fmt::format("class {} parent {:x}:ff classid {:x}:{:x} htb rate {}bit prio {} {}\n",
                         add, kPortQueuesMajor, kPortQueuesMajor, queue + 1,
                         std::max(own, kMinClassRate), rank, common);
    batch += fmt::format("qdisc {} parent {:x}:{:x} bfifo limit {}\n", add, kPortQueuesMajor,
                         queue + 1, kQueueLimit);
  }
  return batch;
}

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

base::Result<HostLinks> set_up_links(const HostPlan& plan, const std::string& tcp) {
  const base::Result<Tools> tools = find_tools();
  if (!tools.ok()) {
    return tools.status();
  }
  HostLinks links;
  if (base::Status status = make_pairs(plan, *tools, links); !status.ok()) {
    return status;
  }
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    const base::Status status = in_network_namespace(links.host_namespaces[i].get(), [&] {
      return set_up_host(plan, i, *tools, tcp, links.hosts_pace);
    });
    if (!status.ok()) {
      return status;
    }
  }
  return links;
}

}  // namespace spillway::lab
