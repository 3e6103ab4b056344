// SPDX-License-Identifier: Apache-2.0
//
// The C interface's options, checked and turned into what the core speaks.
#pragma once

#include <spillway/spillway.h>

#include "base/status.h"
#include "codec/plane_code.h"
#include "packetize/packet_plan.h"
#include "packetize/packetizer.h"
#include "wire/packet_auth.h"

namespace spillway::capi {

struct Settings {
  packetize::PacketPlan plan;
  wire::PacketAuth auth;
  packetize::Envelope envelope;
  codec::Estimate estimate;
};

base::Result<Settings> settings_from(const spillway_packet_options* options, std::size_t count);

}  // namespace spillway::capi
