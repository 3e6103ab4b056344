// SPDX-License-Identifier: Apache-2.0
//
// How a job begins: the ranks of a communicator show each other where they can be spoken to, and
// where their first epoch's data goes. From that all of them make the same first decision.
//
// Blocks for an all-gather over the communicator, and for as long as its operations may take. One
// thread.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "membership/view.h"
#include "runtime/communicator.h"
#include "runtime/job/mesh_message.h"

namespace spillway::runtime {

struct Founder {
  MemberCard card{};
  membership::Handle handle{};
};

// Of all ranks in order, this one's included.
base::Result<std::vector<Founder>> gather_founders(Communicator& communicator,
                                                   const Founder& founder);

// Epoch 1, which needs no vote: all founders know the same. The last `standbys` are such.
membership::Decision founding_decision(const std::vector<Founder>& founders, std::size_t standbys);

}  // namespace spillway::runtime
