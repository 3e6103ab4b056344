// SPDX-License-Identifier: Apache-2.0
#include "sim/tcp_timer.h"

#include <algorithm>

namespace spillway::sim {
namespace {

constexpr unsigned kMostDoublings = 20;  // past any rto_max, and no overflow

base::Duration distance(base::Duration a, base::Duration b) {
  return a > b ? a - b : b - a;
}

}  // namespace

TcpTimer::TcpTimer(const TcpConfig& config)
    : rto_min_(config.rto_min), rto_max_(config.rto_max), rto_(config.rto_initial()) {}

void TcpTimer::on_sample(base::Duration round_trip) {
  if (has_sample_) {
    deviation_ = (deviation_ * 3 + distance(smoothed_, round_trip)) / 4;
    smoothed_ = (smoothed_ * 7 + round_trip) / 8;
  } else {
    smoothed_ = round_trip;
    deviation_ = round_trip / 2;
    has_sample_ = true;
  }
  rto_ = std::max(rto_min_, smoothed_ + deviation_ * 4);
}

base::Duration TcpTimer::timeout() const {
  const unsigned doublings = std::min(doublings_, kMostDoublings);
  return std::min(rto_ * (std::int64_t{1} << doublings), rto_max_);
}

}  // namespace spillway::sim
