// SPDX-License-Identifier: Apache-2.0
#include "net/carrier.h"

namespace spillway::net {

std::string_view name_of(Carrier carrier) {
  switch (carrier) {
    case Carrier::kUdp:
      return "udp";
    case Carrier::kTcp:
      return "tcp";
    case Carrier::kAuto:
      break;
  }
  return "auto";
}

std::optional<Carrier> carrier_named(std::string_view name) {
  for (const Carrier carrier : {Carrier::kUdp, Carrier::kTcp, Carrier::kAuto}) {
    if (name == name_of(carrier)) {
      return carrier;
    }
  }
  return std::nullopt;
}

base::Result<Carrier> carrier_from(const base::Environment& environment) {
  const base::Result<std::string> name = environment.checked_text("SPILLWAY_CARRIER");
  if (!name.ok()) {
    return name.status();
  }
  return carrier_named(*name).value_or(Carrier::kAuto);
}

TcpOptions tcp_options_from(const base::Environment& environment) {
  return {.congestion = environment.text("SPILLWAY_TCP_CONGESTION")};
}

}  // namespace spillway::net
