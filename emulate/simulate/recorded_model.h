// SPDX-License-Identifier: Apache-2.0
//
// Communication takes as long as the trace recorded, without contention: what `spillway emulate
// show` draws. A transfer without a recorded duration takes no time.
#pragma once

#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "emulate/simulate/communication_model.h"

namespace spillway::emulate {

class RecordedModel final : public CommunicationModel {
 public:
  base::Status begin(const Transfer& transfer, base::Instant now) override {
    ends_.emplace(now + transfer.recorded, transfer.meeting);
    return {};
  }
  base::Instant advance(base::Instant limit, std::vector<MeetingIndex>& ended) override {
    if (ends_.empty() || ends_.top().first > limit) {
      return limit;
    }
    const base::Instant now = ends_.top().first;
    while (!ends_.empty() && ends_.top().first == now) {
      ended.push_back(ends_.top().second);
      ends_.pop();
      ++events_;
    }
    return now;
  }
  bool has_open() const override { return !ends_.empty(); }
  std::uint64_t events() const override { return events_; }

 private:
  using End = std::pair<base::Instant, MeetingIndex>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::uint64_t events_ = 0;
};

}  // namespace spillway::emulate
