// SPDX-License-Identifier: Apache-2.0
//
// A state that changes only as its enum allows. enter() asks may_follow(from, to), defined next to
// the enum, and aborts on any other transition. So an object has one state, its life cycle is
// stated in one place, and a test can try all pairs. A plain value.
#pragma once

#include "base/check.h"

namespace spillway::base {

template <typename State>
class Tracked {
 public:
  explicit Tracked(State first) : state_(first) {}

  void enter(State next) {
    SPILLWAY_CHECK(may_follow(state_, next));
    state_ = next;
  }
  State operator*() const { return state_; }
  bool operator==(State state) const { return state_ == state; }

 private:
  State state_;
};

}  // namespace spillway::base
