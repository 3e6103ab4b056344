// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/host/interfaces.h"

#include <fmt/format.h>

#include <optional>

#include "net/interfaces.h"

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

}  // namespace spillway::doctor
