// SPDX-License-Identifier: Apache-2.0
#include "lab/link_batches.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/transmitter.h"

namespace spillway::lab {
namespace {

constexpr std::int64_t kEthernetHeader = 14;
constexpr std::int64_t kLeastClassRate = 8'000;  // bit/s: what a class has for itself
constexpr int kLastRank = 7;
// The switch has decided what waits; this must hold it.
constexpr std::int64_t kQueueLimit = 2LL * SPILLWAY_MAX_QUEUE_BYTES;

std::int64_t bytes_in(base::BitRate rate, base::Duration time) {
  return rate.count() / 8 * (time.count() / 1'000) / 1'000'000;
}

}  // namespace

std::string fabric_links_batch(const HostPlan& plan, const std::vector<int>& namespace_fds) {
  std::string batch = "link set dev lo up\n";
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    const HostEntry& host = plan.hosts[i];
    // One segment each: a frame on a veth is then what it would be on a wire.
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

std::string host_shaping_batch(const HostPlan& plan, std::size_t index) {
  const base::BitRate rate = plan.hosts[index].rate;
  const std::int64_t burst =
      std::max(2 * (plan.mtu + kEthernetHeader), bytes_in(rate, base::microseconds(200)));
  const std::int64_t limit =
      std::max<std::int64_t>(1'000'000, bytes_in(rate, base::milliseconds(10)));
  return fmt::format("qdisc add dev {} root tbf rate {}bit overhead {} burst {} limit {}\n",
                     kHostInterface, rate.count(), sim::kWireOverhead, burst, limit);
}

std::string port_queues_batch(const HostPlan& plan, std::size_t index,
                              const spillway_port_config& port) {
  const HostEntry& host = plan.hosts[index];
  const std::int64_t rate = host.rate.count();
  const std::int64_t frame = plan.mtu + kEthernetHeader;
  // What a timer is late by is made up for; decisions do not hang on it.
  const std::int64_t burst = std::max(2 * frame, bytes_in(host.rate, base::milliseconds(1)));
  const std::string common = fmt::format("ceil {}bit burst {} cburst {} quantum {} overhead {}",
                                         rate, burst, burst, 2 * frame, sim::kWireOverhead);
  const std::string add = fmt::format("add dev {}", host.port_interface);
  std::string batch =
      fmt::format("qdisc {} root handle {:x}: htb default 1\n", add, kPortQueuesMajor);
  batch += fmt::format("class {} parent {:x}: classid {:x}:ff htb rate {}bit {}\n", add,
                       kPortQueuesMajor, kPortQueuesMajor, rate, common);
  for (int queue = 0; queue < SPILLWAY_QUEUES; ++queue) {
    const bool is_control = queue == SPILLWAY_CONTROL_QUEUE;
    const std::int64_t own = is_control ? rate * port.control_share_percent / 100 : kLeastClassRate;
    const int rank = is_control ? kLastRank : SPILLWAY_DATA_QUEUES - 1 - queue;
    batch += fmt::format("class {} parent {:x}:ff classid {:x}:{:x} htb rate {}bit prio {} {}\n",
                         add, kPortQueuesMajor, kPortQueuesMajor, queue + 1,
                         std::max(own, kLeastClassRate), rank, common);
    batch += fmt::format("qdisc {} parent {:x}:{:x} bfifo limit {}\n", add, kPortQueuesMajor,
                         queue + 1, kQueueLimit);
  }
  return batch;
}

}  // namespace spillway::lab
