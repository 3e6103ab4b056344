// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/host/sockets.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "net/transport_driver.h"
#include "tools/doctor/peer/mark_survival.h"
#include "tools/doctor/peer/probe_socket.h"

namespace spillway::doctor {
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
  std::string_view variable;
  std::string_view buys;
  std::string_view since;  // first kernel that has it
};

Finding check_offload(const Offload& offload, bool wanted, bool available) {
  const std::string check(offload.check);
  if (!wanted) {
    return {check, Severity::kNote, fmt::format("turned off by {}=0", offload.variable),
            fmt::format("unset {}", offload.variable)};
  }
  if (!available) {
    return {check, Severity::kWarning, fmt::format("the kernel does not have it: {}", offload.buys),
            fmt::format("use {} or newer", offload.since)};
  }
  return {check, Severity::kOk, fmt::format("on: {}", offload.buys)};
}

}  // namespace

Findings check_offloads(const net::Offloads& wanted, const net::Offloads& available) {
  return {
      check_offload({"gso", "SPILLWAY_GSO", "many datagrams leave in one call", "Linux 4.18"},
                    wanted.gso, available.gso),
      check_offload({"gro", "SPILLWAY_GRO", "many datagrams arrive in one call", "Linux 5.0"},
                    wanted.gro, available.gro),
      check_offload({"batching", "SPILLWAY_BATCHING", "several calls are made in one", "Linux 3.0"},
                    wanted.batching, available.batching),
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
