// SPDX-License-Identifier: Apache-2.0
//
// Messages of one priority that may send, in turn: a circle with a front. The front is looked at
// for every packet and is kept where it is found at once; the rest moves only between bursts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "transport/outgoing_message.h"

namespace spillway::transport {

class ReadyList {
 public:
  bool empty() const { return front_ == nullptr; }
  OutgoingMessage* front() const { return front_; }

  // Behind all others.
  void push_back(OutgoingMessage* message) {
    circle_.insert(circle_.begin() + static_cast<std::ptrdiff_t>(at_), message);
    at_ = circle_.size() == 1 ? 0 : at_ + 1;
    front_ = circle_[at_];
  }

  // The next one becomes the front, the front the last.
  void rotate() {
    at_ = at_ + 1 == circle_.size() ? 0 : at_ + 1;
    front_ = circle_[at_];
  }

  void erase(const OutgoingMessage* message) {
    const auto found = std::find(circle_.begin(), circle_.end(), message);
    const auto index = static_cast<std::size_t>(found - circle_.begin());
    circle_.erase(found);
    at_ -= index < at_ ? 1 : 0;
    at_ = at_ == circle_.size() ? 0 : at_;
    front_ = circle_.empty() ? nullptr : circle_[at_];
  }

 private:
  OutgoingMessage* front_ = nullptr;
  std::size_t at_ = 0;
  std::vector<OutgoingMessage*> circle_;
};

}  // namespace spillway::transport
