// SPDX-License-Identifier: Apache-2.0
#include "transport/credit.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace spillway::transport {

namespace {

constexpr double kPaceGain = 0.5;
constexpr double kSlowestPace = 0.5;
constexpr double kFastestPace = 4.0;

}  // namespace

CreditPacer::CreditPacer(base::BitRate rate, std::optional<double> trimmed_target,
                         const Depths& depths)
    : rate_(rate), trimmed_target_(trimmed_target), depths_(depths), depth_(depths.least) {
  if (trimmed_target) {
    pace_ = 1.0 / (1.0 - *trimmed_target);
  }
}

void CreditPacer::enqueue(std::uint32_t slot, std::uint8_t priority) {
  granted_until_.resize(std::max<std::size_t>(granted_until_.size(), slot + std::size_t{1}));
  enqueue({.begin = std::max(granted_until_[slot], latest_.begin), .order = ++turns_, .slot = slot},
          priority);
}

void CreditPacer::enqueue(Turn turn, std::uint8_t priority) {
  waiting_[priority].insert(turn);
  waiting_mask_ |= 1U << priority;
}

void CreditPacer::raise(std::uint32_t slot, std::uint8_t from, std::uint8_t to) {
  const auto found = std::find_if(waiting_[from].begin(), waiting_[from].end(),
                                  [slot](const Turn& turn) { return turn.slot == slot; });
  const Turn turn = *found;
  waiting_[from].erase(found);
  if (waiting_[from].empty()) {
    waiting_mask_ &= ~(1U << from);
  }
  enqueue(turn, to);
}

std::uint32_t CreditPacer::take_turn() {
  SPILLWAY_CHECK(!empty());
  const auto priority = static_cast<std::size_t>(std::bit_width(waiting_mask_) - 1);
  latest_ = *waiting_[priority].begin();
  waiting_[priority].erase(waiting_[priority].begin());
  if (waiting_[priority].empty()) {
    waiting_mask_ &= ~(1U << priority);
  }
  return latest_.slot;
}

void CreditPacer::granted(base::Bytes bytes, base::Instant now) {
  granted_until_[latest_.slot] = latest_.begin + static_cast<std::uint64_t>(bytes.count());
  const double time_ns = static_cast<double>(transmission_time(bytes, rate_).count()) / pace_;
  next_grant_ =
      std::max(next_grant_, now - depth_) + base::nanoseconds(static_cast<std::int64_t>(time_ns));
}

void CreditPacer::on_arrival(bool trimmed) {
  if (!trimmed_target_) {
    return;
  }
  sampled_trimmed_ += trimmed ? 1 : 0;
  if (++sampled_packets_ < kSampledPackets) {
    return;
  }
  const double share = static_cast<double>(sampled_trimmed_) / sampled_packets_;
  pace_ = std::clamp(pace_ * (1.0 + kPaceGain * (*trimmed_target_ - share)), kSlowestPace,
                     kFastestPace);
  sampled_packets_ = 0;
  sampled_trimmed_ = 0;
}

}  // namespace spillway::transport
