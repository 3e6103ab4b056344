// SPDX-License-Identifier: Apache-2.0
//
// Bytes that may be in flight beyond what the network needs, because ranks that share processors
// take turns. While a receiver waits for a processor, arrivals are not reported; while a sender
// waits, reports are not read. A window fit for the network alone would run dry every time, and a
// link would idle for milliseconds.
//
// What is acknowledged between two transmissions to a peer whose window was full was held up in
// hosts at that time. The most of it, slowly forgotten, is the allowance: a report's worth where
// hosts are quick, what the link carries in a turn where they are not. It cannot feed itself,
// because a turn brings no more than the link carried meanwhile.
//
// A full queue in the network looks the same: everything in flight comes back at once. So packets
// that found no room there limit the allowance, and the limit rises by a share of what is
// acknowledged, far slower than it falls.
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
  // This share of the packets in flight found no room: a full network has none for the allowance.
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
