// SPDX-License-Identifier: Apache-2.0
//
// What spillway_comm points to.
#pragma once

#include <spillway/spillway.h>

#include <memory>

#include "runtime/communicator.h"

struct spillway_comm {
  std::unique_ptr<spillway::runtime::Communicator> communicator;
};
