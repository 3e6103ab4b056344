// SPDX-License-Identifier: Apache-2.0
//
// A tenant: another user's traffic between two hosts, for as long as the network runs. It sends
// during `on`, is silent during `off`, and repeats; with `off` of 0 it always sends.
//
//   udp             frames of 1,514 bytes at `rate`, regardless of loss; frames for which the
//                   host's card had no time in a period are not sent later
//   newreno, dctcp  `rate` times `on` as one flow per period; the next flow waits until the
//                   one before has ended
//
// The rate counts wire bytes for udp and payload for the others. `tenant` lines of a scenario are
// read into a Tenant; plan_tenant() resolves its hosts.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/units.h"
#include "sim/scenario/directives.h"
#include "sim/scenario/topology.h"

namespace spillway::scenario {

enum class TenantProtocol : std::uint8_t { kUdp, kNewReno, kDctcp };

struct Tenant {
  std::string place;  // for messages: "line 4"
  std::string from;   // hosts' names
  std::string to;
  TenantProtocol protocol = TenantProtocol::kUdp;
  base::BitRate rate;  // 0: use `share`
  double share = 0.5;  // of the sending host's link
  base::Duration on = base::milliseconds(10);
  base::Duration off = base::milliseconds(10);
  base::Instant start;
};

struct TenantPlan {
  HostId from = 0;
  HostId to = 0;
  TenantProtocol protocol = TenantProtocol::kUdp;
  base::BitRate rate;
  base::Duration on;
  base::Duration off;
  base::Instant start;
};

base::Status read_tenant(const Directive& directive, Tenant& tenant);

// Errors name the line of the tenant.
base::Result<TenantPlan> plan_tenant(const Tenant& tenant, const Topology& topology);

}  // namespace spillway::scenario
