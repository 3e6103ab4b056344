// SPDX-License-Identifier: Apache-2.0
//
// The founding of a job: the ranks of a communicator exchange the addresses of their streams and of
// their first epoch's data. From these, all of them derive the same first decision.
//
// Blocks for an all-gather over the communicator, at most its operation timeout. One thread.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "elastic/membership/view.h"
#include "elastic/mesh_message.h"

namespace spillway::runtime {

struct Founder {
  MemberCard card{};
  membership::Handle handle{};
};

// The founders by rank, including this one.
base::Result<std::vector<Founder>> gather_founders(Communicator& communicator,
                                                   const Founder& founder);

// The decision for epoch 1. It needs no vote, because all founders know the same. The last
// `standbys` founders become standbys.
membership::Decision founding_decision(const std::vector<Founder>& founders, std::size_t standbys);

}  // namespace spillway::runtime
