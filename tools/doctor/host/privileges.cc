// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/host/privileges.h"

#include <fmt/format.h>
#include <linux/capability.h>

#include <algorithm>
#include <charconv>

namespace spillway::doctor {
namespace {

// Added in Linux 5.8; older headers lack it.
constexpr unsigned kCapBpf = 39;

bool has(CapabilitySet set, unsigned capability) {
  return (set >> capability & 1U) != 0;
}

Finding capability_finding(bool has_it, std::string_view name, std::string_view buys) {
  const std::string check = fmt::format("cap-{}", name);
  if (has_it) {
    return {check, Severity::kOk, fmt::format("there: {}", buys)};
  }
  return {check, Severity::kNote, fmt::format("missing: {}", buys),
          fmt::format("run as root, or setcap cap_{}+ep on the binary", name)};
}

Finding refused(std::string_view setting, unsigned value) {
  return {"user-namespaces", Severity::kNote,
          fmt::format("{} forbids them: a lab without root runs on loopback only", setting),
          fmt::format("sysctl -w {}={}, or run labs as root", setting, value)};
}

}  // namespace

std::optional<CapabilitySet> parse_effective_capabilities(std::string_view status) {
  constexpr std::string_view kLabel = "CapEff:";
  const std::size_t at = status.find(kLabel);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  std::string_view rest = status.substr(at + kLabel.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  CapabilitySet set = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), set, 16).ec != std::errc()) {
    return std::nullopt;
  }
  return set;
}

CapabilitySet effective_capabilities(const HostFiles& files) {
  return parse_effective_capabilities(files.read("proc/self/status").value_or("")).value_or(0);
}

bool has_net_admin(CapabilitySet set) {
  return has(set, CAP_NET_ADMIN);
}

bool has_net_raw(CapabilitySet set) {
  return has(set, CAP_NET_RAW);
}

bool has_bpf(CapabilitySet set) {
  return has(set, kCapBpf) || has(set, CAP_SYS_ADMIN);
}

Findings check_capabilities(CapabilitySet set) {
  return {
      capability_finding(has_net_admin(set), "net_admin",
                         "socket queues beyond the system's limits, eBPF on interfaces"),
      capability_finding(has_net_raw(set), "net_raw",
                         "a switch on interfaces, a look at frames that the kernel throws away"),
      capability_finding(has_bpf(set), "bpf", "eBPF programs: the switch and the fix-up"),
  };
}

Finding check_user_namespaces(const HostFiles& files) {
  if (files.read_number("proc/sys/user/max_user_namespaces") == 0ULL) {
    return refused("user.max_user_namespaces", 10000);
  }
  if (files.read_number("proc/sys/kernel/unprivileged_userns_clone") == 0ULL) {
    return refused("kernel.unprivileged_userns_clone", 1);
  }
  if (files.read_number("proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1ULL) {
    return refused("kernel.apparmor_restrict_unprivileged_userns", 0);
  }
  return {"user-namespaces", Severity::kOk, "allowed: labs need no root"};
}

}  // namespace spillway::doctor
