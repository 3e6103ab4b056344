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

class ReplayGroups {
 public:
  struct Member {
    runtime::Communicator* communicator = nullptr;
    std::uint16_t rank = 0;  // within the group
    std::uint16_t size = 1;
  };

  // The communicator must have as many ranks as the world. Both must outlive the result.
  static base::Result<ReplayGroups> make(const World& world, runtime::Communicator& everybody,
                                         base::Duration patience);

  // `group`: a group of the world that contains this rank.
  Member member(std::uint32_t group) const;
  runtime::Communicator& everybody() const { return *everybody_; }

 private:
  explicit ReplayGroups(runtime::Communicator& everybody) : everybody_(&everybody) {}
  base::Status make_group(const World& world, std::uint32_t group, base::Duration patience);

  runtime::Communicator* everybody_;
  std::map<std::uint32_t, std::unique_ptr<runtime::Communicator>> made_;
  std::map<std::uint32_t, Member> members_;
};

}  // namespace spillway::emulate
