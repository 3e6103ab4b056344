// SPDX-License-Identifier: Apache-2.0
#include "doctor/loopback_marks.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "doctor/mark_survival.h"
#include "doctor/probe_socket.h"

namespace spillway::doctor {
namespace {

constexpr base::Duration kPatience = base::milliseconds(500);

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
  if (from.send(kAnything, tos, &to.local()) != 0 || !to.wait(kPatience)) {
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
