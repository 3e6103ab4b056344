// SPDX-License-Identifier: Apache-2.0
//
// The communicators of a replay: the world's, which the launcher's variables describe, and one for
// each group of the trace that this rank is in. The first member of a group makes its id and sends
// it to the others over the world; then all make the communicator, group by group, in an order that
// is the same everywhere.
//
// Made once, by every rank. Groups of one, and those that communicate nothing, have none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "emulate/trace/graph.h"
#include "runtime/communicator.h"

namespace spillway::emulate {

class ReplayGroups {
 public:
  struct Member {
    runtime::Communicator* communicator = nullptr;
    std::uint16_t rank = 0;  // within the group
    std::uint16_t size = 1;
  };

  // The world must have as many ranks as the communicator. Both outlive it.
  static base::Result<ReplayGroups> make(const World& world, runtime::Communicator& everybody,
                                         base::Duration patience);

  // Of a group of the world that this rank is in.
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
