// SPDX-License-Identifier: Apache-2.0
//
// The communicators of a replay: the world's, which the launcher's variables describe, and one for
// each group of the trace that contains this rank. A group's first member creates its id and sends
// it to the others over the world. Then all members create the communicator, group by group, in an
// order that is the same at every rank.
//
// Every rank calls make() once. Groups of one rank, and groups that communicate nothing, have no
// communicator.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "comm/communicator.h"
#include "emulate/trace/graph.h"

namespace spillway::emulate {

class GroupCommunicators {
 public:
  struct Membership {
    comm::Communicator* communicator = nullptr;
    std::uint16_t rank = 0;  // within the group
    std::uint16_t size = 1;
  };

  // The communicator must have as many ranks as the world. Both must outlive the result.
  static base::Result<GroupCommunicators> make(const World& world, comm::Communicator& all_ranks,
                                               base::Duration patience);

  // `group`: a group of the world that contains this rank.
  Membership membership(std::uint32_t group) const;
  comm::Communicator& all_ranks() const { return *all_ranks_; }

 private:
  explicit GroupCommunicators(comm::Communicator& all_ranks) : all_ranks_(&all_ranks) {}
  base::Status make_group(const World& world, std::uint32_t group, base::Duration patience);

  comm::Communicator* all_ranks_;
  std::map<std::uint32_t, std::unique_ptr<comm::Communicator>> made_;
  std::map<std::uint32_t, Membership> memberships_;
};

}  // namespace spillway::emulate
