// SPDX-License-Identifier: Apache-2.0
//
// Defines spillway_comm, and checks and converts a caller's spillway_comm_config for the runtime.
// Pure, except that it may read the rank from the environment.
#pragma once

#include <spillway/spillway.h>

#include <memory>

#include "base/environment.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace spillway::capi {

spillway_comm_config default_comm_config();

base::Result<runtime::CommunicatorConfig> communicator_config_from(
    const spillway_comm_config* config, const base::Environment& environment);

}  // namespace spillway::capi

struct spillway_comm {
  // Shared with a job while the job aborts it.
  std::shared_ptr<spillway::runtime::Communicator> communicator;
};
