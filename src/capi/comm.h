// SPDX-License-Identifier: Apache-2.0
//
// What spillway_comm points to, and how a caller's spillway_comm_config is checked and turned into
// what the runtime takes. Pure, but that a rank to be taken from the environment is looked for
// there.
#pragma once

#include <spillway/spillway.h>

#include <memory>

#include "base/environment.h"
#include "base/status.h"
#include "runtime/communicator.h"

namespace spillway::capi {

spillway_comm_config default_comm_config();

base::Result<runtime::CommunicatorConfig> communicator_config_from(
    const spillway_comm_config* config, const base::Environment& environment);

}  // namespace spillway::capi

struct spillway_comm {
  // Shared with the job that ends it when its members change, for as long as that takes.
  std::shared_ptr<spillway::runtime::Communicator> communicator;
};
