// SPDX-License-Identifier: Apache-2.0
//
// How much may be on its way beyond what the network needs, because hosts take turns: while a
// receiver waits for a processor, what has arrived is not reported; while a sender does, reports
// are not read. A window fit for the network alone would run dry every time, and a link would idle
// for milliseconds.
//
// What is acknowledged between two transmissions to a peer whose window was full was in the hands
// of hosts at that time. The most of it, slowly forgotten, is the allowance: a report's worth where
// hosts are quick, what the link carries in a turn where they are not. It cannot feed itself, for a
// turn brings no more than the link carried meanwhile.
//
// Unless the network's own queue is what was waited for: then all that is under way comes back at
// once, whatever it is. So what finds no room there limits the allowance, and the limit rises by a
// share of what is acknowledged, far slower than it falls.
//
// Pure; one per peer, one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace spillway::transport {

class HostAllowance {
 public:
  void on_acknowledged(std::int64_t bytes) {
    since_sent_ += bytes;
    if (limit_ != kNoLimit) {
      limit_ += bytes / kRegrowth;
    }
  }
  void on_sent() {
    if (since_sent_ > 0) {
      bytes_ = std::min(limit_, std::max(bytes_ - bytes_ / kForgetting, since_sent_));
      since_sent_ = 0;
    }
  }
  // So much of what was on its way found no room: no network that is full has room for this.
  void on_spoilt(double share) {
    if (share > 0.0) {
      bytes_ -= static_cast<std::int64_t>(static_cast<double>(bytes_) * share);
      limit_ = bytes_;
      since_sent_ = 0;
    }
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  static constexpr std::int64_t kForgetting = 256;
  static constexpr std::int64_t kRegrowth = 8;
  static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

  std::int64_t since_sent_ = 0;
  std::int64_t bytes_ = 0;
  std::int64_t limit_ = kNoLimit;
};

}  // namespace spillway::transport
