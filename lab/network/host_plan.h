// SPDX-License-Identifier: Apache-2.0
//
// Names, addresses and link rates of a lab's hosts. They follow from the scenario alone, so every
// process of a lab computes the same ones. Host n (from 0; rank n runs on it) has
//
//   10.77.x.y/16         x.y = n + 1 in two bytes
//   fd77::h/64           h = n + 1 in hexadecimal; none if the MTU is below IPv6's 1280
//   02:53:57:00:x:y      its Ethernet address
//   eth0                 its interface; `port<n>` is the other end, in the fabric's namespace
//
// Without namespaces (Isolation::kNone) hosts share 127.0.0.1 and differ by port.
//
// Limits: kMaxHosts, kMinMtu to kMaxMtu, links of at most kMaxRate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "sim/scenario/scenario.h"

namespace spillway::lab {

inline constexpr std::uint32_t kMaxHosts = 256;
inline constexpr unsigned kMinMtu = 576;
inline constexpr unsigned kMinIpv6Mtu = 1280;
inline constexpr unsigned kMaxMtu = 9216;
inline constexpr unsigned kDefaultMtu = 1500;
// No machine emulates faster links in real time.
inline constexpr base::BitRate kMaxRate = base::gigabits_per_second(40);

inline constexpr std::string_view kHostInterface = "eth0";

struct HostEntry {
  std::string name;            // of the topology: "host0"
  std::string port_interface;  // "port0"
  std::string mac;
  std::string ipv4;
  std::string ipv6;  // empty: none
  base::BitRate rate;
  net::SocketAddress peer;    // where others send Spillway packets for it
  net::SocketAddress listen;  // where it receives them
};

struct HostPlan {
  std::vector<HostEntry> hosts;
  unsigned mtu = kDefaultMtu;
  std::uint32_t trim_bytes = 0;  // 0: the fabric does not trim
  std::string master_address;
};

struct PlanOptions {
  unsigned mtu = kDefaultMtu;
  std::uint16_t port = 7077;
};

base::Result<HostPlan> make_host_plan(const scenario::Scenario& scenario,
                                      const PlanOptions& options);

// The same hosts as plain processes on loopback. `peers` and `listens` have one entry per host.
HostPlan on_loopback(HostPlan plan, const std::vector<net::SocketAddress>& peers,
                     const std::vector<net::SocketAddress>& listens);

}  // namespace spillway::lab
