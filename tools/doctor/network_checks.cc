// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/host_checks.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "net/address.h"
#include "net/transport_driver.h"
#include "tools/doctor/peer_checks.h"
#include "tools/doctor/probe_socket.h"

namespace spillway::doctor {

namespace {

constexpr unsigned kMinMtuIpv6Link = 1280;  // the smallest MTU that IPv6 allows
constexpr unsigned kJumboMtu = 9000;        // the largest that Spillway fills

Finding check_mtu(const InterfaceState& interface) {
  if (interface.mtu >= kJumboMtu) {
    return {"mtu", Severity::kOk,
            fmt::format("{} carries {} bytes", interface.name, interface.mtu)};
  }
  if (interface.mtu < kMinMtuIpv6Link) {
    return {"mtu", Severity::kWarning,
            fmt::format("{} carries only {} bytes: much of every packet is header", interface.name,
                        interface.mtu),
            fmt::format("ip link set dev {} mtu 1500", interface.name)};
  }
  return {"mtu", Severity::kNote,
          fmt::format("{} carries {} bytes: with 9000 there are fewer packets to handle",
                      interface.name, interface.mtu),
          fmt::format("ip link set dev {} mtu 9000, if all hosts and switches take that",
                      interface.name)};
}

Finding check_lro(const InterfaceState& interface) {
  if (!interface.lro) {
    return {"lro", Severity::kOk, fmt::format("off on {}", interface.name)};
  }
  return {"lro", Severity::kWarning,
          fmt::format("on at {}: the card merges cut packets with others", interface.name),
          fmt::format("ethtool -K {} lro off", interface.name)};
}

}  // namespace

std::vector<InterfaceState> up_interfaces() {
  std::vector<InterfaceState> states;
  for (const std::string& name : net::interface_names()) {
    const std::optional<unsigned> mtu = net::interface_mtu(name);
    if (mtu && net::is_up_and_outward(name)) {
      states.push_back({.name = name, .mtu = *mtu, .lro = net::has_lro(name)});
    }
  }
  return states;
}

Findings check_interfaces(std::span<const InterfaceState> interfaces) {
  if (interfaces.empty()) {
    return {{"mtu", Severity::kNote, "no interface but loopback is up",
             "ip link set dev NAME up, where other hosts shall be reached"}};
  }
  Findings findings;
  for (const InterfaceState& interface : interfaces) {
    findings.push_back(check_mtu(interface));
    findings.push_back(check_lro(interface));
  }
  return findings;
}

namespace {

Finding check_limit(const HostFiles& files, std::string_view limit, std::size_t wanted,
                    bool may_exceed) {
  const std::string check = fmt::format("net.core.{}", limit);
  const std::string remedy = fmt::format("sysctl -w {}={}", check, wanted);
  const auto bytes = files.read_number(fmt::format("proc/sys/net/core/{}", limit));
  if (!bytes) {
    return {check, may_exceed ? Severity::kOk : Severity::kNote,
            may_exceed ? "cannot be read, and CAP_NET_ADMIN exceeds it" : "cannot be read here",
            may_exceed ? "" : fmt::format("{} on the host, outside this namespace", remedy)};
  }
  if (*bytes >= wanted) {
    return {check, Severity::kOk, fmt::format("{} bytes, {} are wanted", *bytes, wanted)};
  }
  if (may_exceed) {
    return {check, Severity::kNote,
            fmt::format("{} bytes, {} are wanted: CAP_NET_ADMIN exceeds it", *bytes, wanted),
            fmt::format("{}, so that ranks without it get them too", remedy)};
  }
  return {check, Severity::kWarning,
          fmt::format("{} bytes, {} are wanted: bursts may be lost on this host", *bytes, wanted),
          remedy};
}

}  // namespace

std::size_t wanted_socket_buffer() {
  return net::DriverConfig{}.socket_buffer_bytes;
}

Findings check_socket_limits(const HostFiles& files, std::size_t wanted, bool may_exceed) {
  return {check_limit(files, "rmem_max", wanted, may_exceed),
          check_limit(files, "wmem_max", wanted, may_exceed)};
}

namespace {

struct Offload {
  std::string_view check;
  std::string_view buys;
  std::string_view since;  // first kernel that has it
};

Finding check_offload(const Offload& offload, bool available) {
  const std::string check(offload.check);
  if (!available) {
    return {check, Severity::kWarning, fmt::format("the kernel does not have it: {}", offload.buys),
            fmt::format("use {} or newer", offload.since)};
  }
  return {check, Severity::kOk, fmt::format("on: {}", offload.buys)};
}

}  // namespace

Findings check_offloads(const net::Offloads& available) {
  return {
      check_offload({"gso", "many datagrams leave in one call", "Linux 4.18"}, available.gso),
      check_offload({"gro", "many datagrams arrive in one call", "Linux 5.0"}, available.gro),
      check_offload({"batching", "several calls are made in one", "Linux 3.0"}, available.batching),
  };
}

namespace {

constexpr base::Duration kLoopbackPatience = base::milliseconds(500);

std::vector<std::uint8_t> values_to_try() {
  std::vector<std::uint8_t> values;
  for (const auto& trials : {dscp_trials(), ecn_trials()}) {
    for (const MarkTrial& trial : trials) {
      values.push_back(trial.tos);
    }
  }
  return values;
}

void try_value(ProbeSocket& from, ProbeSocket& to, std::uint8_t tos, LoopbackTrial& trial) {
  constexpr std::array<std::uint8_t, 1> kAnything = {0};
  ++trial.sent;
  if (from.send(kAnything, tos, &to.local()) != 0 || !to.wait(kLoopbackPatience)) {
    return;
  }
  if (const std::optional<ProbeArrival> arrival = to.receive()) {
    trial.kept += arrival->tos == tos ? 1 : 0;
    trial.stamped = arrival->stamped;
  }
}

}  // namespace

LoopbackTrial try_loopback(bool ipv6) {
  const net::SocketAddress address =
      net::SocketAddress::parse(ipv6 ? "[::1]:0" : "127.0.0.1:0").value();
  base::Result<ProbeSocket> from = ProbeSocket::open(address);
  base::Result<ProbeSocket> to = ProbeSocket::open(address);
  LoopbackTrial trial;
  trial.opened = from.ok() && to.ok();
  if (trial.opened) {
    for (const std::uint8_t tos : values_to_try()) {
      try_value(from.value(), to.value(), tos, trial);
    }
  }
  return trial;
}

Finding check_loopback_marks(const LoopbackTrial& trial, bool ipv6) {
  const std::string check = ipv6 ? "marks-ipv6" : "marks-ipv4";
  if (!trial.opened) {
    return {check, Severity::kNote, "this host has no such addresses",
            fmt::format("ip link set dev lo up; sysctl -w net.ipv6.conf.lo.disable_ipv6=0{}",
                        ipv6 ? "" : ", if IPv6 is wanted")};
  }
  if (trial.kept < trial.sent) {
    return {check, Severity::kWarning,
            fmt::format("{} of {} values of DSCP and ECN do not cross loopback unchanged",
                        trial.sent - trial.kept, trial.sent),
            "look for rules that rewrite them: nft list ruleset, tc filter show"};
  }
  return {check, Severity::kOk, fmt::format("{} values of DSCP and ECN set and read", trial.sent)};
}

Finding check_receive_stamps(const LoopbackTrial& trial) {
  if (!trial.stamped) {
    return {"receive-stamps", Severity::kWarning,
            "the kernel does not say when a packet arrived: round trips include this host's delays",
            "use a kernel with SO_TIMESTAMPNS"};
  }
  return {"receive-stamps", Severity::kOk, "the kernel says when a packet arrived"};
}

}  // namespace spillway::doctor
