// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/tenant.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units_text.h"
#include "sim/scenario/directives.h"

namespace spillway::scenario {
namespace {

// Per period of a TCP tenant: a flow's receiver keeps a bit per segment.
constexpr base::Bytes kMaxFlowBytes = base::bytes(1'000'000'000);
// Sums of starts and periods stay far from the end of time.
constexpr base::Duration kLongest = base::seconds(1'000'000);

base::Status bad(const Tenant& tenant, std::string_view what) {
  return base::invalid_argument(fmt::format("{}: tenant: {}", tenant.place, what));
}

// A rate, or a share of the link.
ValueReader to_rate_or_share(Tenant& tenant) {
  return [&tenant](std::string_view text) -> base::Status {
    if (const base::Result<base::BitRate> rate = base::parse_rate(text); rate.ok()) {
      tenant.rate = *rate;
      return validate_rate(*rate);
    }
    const base::Result<double> share = base::parse_fraction(text);
    if (!share.ok() || *share <= 0.0) {
      return base::invalid_argument(
          fmt::format("\"{}\" is neither a rate such as 500mbit nor a share of the host's link "
                      "above zero such as 50%",
                      text));
    }
    tenant.rate = base::BitRate();
    tenant.share = *share;
    return {};
  };
}

base::Status check(const Tenant& tenant) {
  if (tenant.from.empty() || tenant.to.empty()) {
    return bad(tenant, "say between which hosts: from=NAME to=NAME");
  }
  if (tenant.from == tenant.to) {
    return bad(tenant, "from= and to= are the same host");
  }
  if (tenant.on <= base::Duration()) {
    return bad(tenant, "on= must be above 0; off=0 is all the time");
  }
  if (std::max({tenant.on, tenant.off, tenant.start.since_zero()}) > kLongest) {
    return bad(tenant, "on=, off= and start= are at most 1000000s");
  }
  return {};
}

base::Result<HostId> find_host(const Tenant& tenant, const std::string& name,
                               const Topology& topology) {
  const auto found = std::ranges::find(topology.host_names, name);
  if (found == topology.host_names.end()) {
    return bad(tenant, fmt::format("there is no host '{}'; hosts are {} to {}", name,
                                   topology.host_names.front(), topology.host_names.back()));
  }
  return static_cast<HostId>(found - topology.host_names.begin());
}

base::BitRate rate_of(const Tenant& tenant, base::BitRate link) {
  if (tenant.rate > base::BitRate()) {
    return tenant.rate;
  }
  return base::bits_per_second(std::llround(tenant.share * static_cast<double>(link.count())));
}

base::Status check_size(const Tenant& tenant, base::BitRate rate) {
  if (const base::Status status = validate_rate(rate); !status.ok()) {
    return bad(tenant, status.message());
  }
  if (tenant.protocol != TenantProtocol::kUdp &&
      base::transmission_time(kMaxFlowBytes, rate) < tenant.on) {
    return bad(tenant, fmt::format("more than {} bytes in one on= period; give a shorter one",
                                   kMaxFlowBytes.count()));
  }
  return {};
}

}  // namespace

base::Status read_tenant(const Directive& directive, Tenant& tenant) {
  tenant.place = directive.place;
  const base::Status status = read_values(
      directive, {{"from", to_text(tenant.from)},
                  {"to", to_text(tenant.to)},
                  {"protocol", to_choice<TenantProtocol>(tenant.protocol,
                                                         {{"udp", TenantProtocol::kUdp},
                                                          {"newreno", TenantProtocol::kNewReno},
                                                          {"dctcp", TenantProtocol::kDctcp}})},
                  {"rate", to_rate_or_share(tenant)},
                  {"on", to_duration(tenant.on)},
                  {"off", to_duration(tenant.off)},
                  {"start", to_instant(tenant.start)}});
  return status.ok() ? check(tenant) : status;
}

base::Result<TenantPlan> plan_tenant(const Tenant& tenant, const Topology& topology) {
  const base::Result<HostId> from = find_host(tenant, tenant.from, topology);
  if (!from.ok()) {
    return from.status();
  }
  const base::Result<HostId> to = find_host(tenant, tenant.to, topology);
  if (!to.ok()) {
    return to.status();
  }
  const base::BitRate rate = rate_of(tenant, topology.host_rate(*from));
  if (const base::Status status = check_size(tenant, rate); !status.ok()) {
    return status;
  }
  return TenantPlan{.from = *from,
                    .to = *to,
                    .protocol = tenant.protocol,
                    .rate = rate,
                    .on = tenant.on,
                    .off = tenant.off,
                    .start = tenant.start};
}

}  // namespace spillway::scenario
