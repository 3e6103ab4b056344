// SPDX-License-Identifier: Apache-2.0
//
// A caller's spillway_comm_config, checked and turned into what the runtime takes. Pure, but that a
// rank to be taken from the environment is looked for there.
#pragma once

#include <spillway/spillway.h>

#include "base/status.h"
#include "runtime/communicator.h"
#include "runtime/launch_environment.h"

namespace spillway::capi {

spillway_comm_config default_comm_config();

base::Result<runtime::CommunicatorOptions> communicator_options_from(
    const spillway_comm_config* config, const runtime::Environment& environment);

}  // namespace spillway::capi
