// SPDX-License-Identifier: Apache-2.0
//
// A tenant: traffic of somebody else from one host to another, for as long as the network runs. It
// sends during `on`, is silent during `off`, and begins again; `off` of 0 is all the time.
//
//   udp             frames of 1,514 bytes at `rate`, whatever becomes of them; what the host's card
//                   had no time for in a period is not sent later
//   newreno, dctcp  what `rate` makes of `on` as one flow per period, the next one not before the
//                   one before has ended
//
// The rate is on the wire for udp and of payload for the others. `tenant` lines of a scenario are
// read into a Tenant; plan_tenant() finds its hosts.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/units.h"
#include "scenario/directives.h"
#include "scenario/topology.h"

namespace spillway::scenario {

enum class TenantProtocol : std::uint8_t { kUdp, kNewReno, kDctcp };

struct Tenant {
  std::string place;  // for messages: "line 4"
  std::string from;   // hosts' names
  std::string to;
  TenantProtocol protocol = TenantProtocol::kUdp;
  base::BitRate rate;  // 0: `share` counts
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

// Errors name the tenant's place.
base::Result<TenantPlan> plan_tenant(const Tenant& tenant, const Topology& topology);

}  // namespace spillway::scenario
