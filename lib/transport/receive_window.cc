// SPDX-License-Identifier: Apache-2.0
#include "transport/receive_window.h"

#include <algorithm>
#include <cmath>

namespace spillway::transport {

namespace {

constexpr double kSmallestPackets = 4.0;  // packets behind a lost one reveal the loss
constexpr double kMostShrunk = 0.5;       // at most by this share in a round
constexpr double kLeastShrunk = 1.0 / 16.0;
constexpr double kMarkedGain = 0.8;
constexpr double kGrowth = 1.0 / 4.0;  // of the window, in a round without queueing
constexpr double kUsedShare = 0.5;
constexpr int kDelayShare = 8;   // queueing up to this share of the round trip is harmless
constexpr int kShortRounds = 4;  // rounds with losses are shorter by this factor
// Losses below this share never count as congestion, however tight the bound: links have them.
constexpr double kHarmlessLoss = 0.02;
constexpr double kDeviations = 2.0;  // by which losses exceed that share by chance

double ratio(base::Duration a, base::Duration b) {
  return static_cast<double>(a.count()) / static_cast<double>(b.count());
}

}  // namespace

ReceiveWindow::ReceiveWindow(const WindowConfig& config, base::Bytes packet)
    : config_(config),
      packet_(static_cast<double>(packet.count())),
      bytes_(static_cast<double>(config.initial.count())) {}

void ReceiveWindow::learn(base::Duration round_trip, base::BitRate rate) {
  const base::Bytes in_round_trip = base::carried_in(round_trip, rate);
  config_.most = std::max(config_.most, in_round_trip * 2);
  config_.delay_target = std::max(config_.delay_target, round_trip / kDelayShare);
  if (!has_shrunk_) {
    bytes_ = std::max(bytes_, static_cast<double>(in_round_trip.count()));
  }
}

void ReceiveWindow::on_arrival(const Arrival& arrival, std::int64_t unused, double bound) {
  round_.bytes += arrival.bytes;
  ++round_.packets;
  round_.marked += arrival.marked ? 1 : 0;
  round_.unusable += arrival.unusable ? 1 : 0;
  round_.most_unused = std::max(round_.most_unused, unused);
  round_.least_queued = std::min(round_.least_queued, arrival.queued);
  const bool is_short = round_.unusable + round_.lost > 0;
  if (static_cast<double>(round_.bytes) * (is_short ? kShortRounds : 1) >= bytes_) {
    end_round(bound);
    round_ = {};
  }
}

void ReceiveWindow::end_round(double bound) {
  const double shrunk = shrunk_by(bound);
  has_shrunk_ |= shrunk > 0.0;
  bytes_ = std::clamp(shrunk > 0.0 ? bytes_ * (1.0 - shrunk) : bytes_ + grown_by(),
                      kSmallestPackets * packet_, static_cast<double>(config_.most.count()));
}

double ReceiveWindow::shrunk_by(double bound) const {
  const auto packets = static_cast<double>(round_.packets);
  const auto lost = static_cast<double>(round_.lost);
  const double harmless = std::max(bound, kHarmlessLoss) * (packets + lost);
  if (lost > harmless + kDeviations * std::sqrt(harmless) + 1.0) {
    return kMostShrunk;
  }
  if (round_.unusable > 0) {
    return std::clamp(static_cast<double>(round_.unusable) / packets, kLeastShrunk, kMostShrunk);
  }
  if (is_marked() && round_.least_queued > config_.delay_target) {
    return std::clamp(kMarkedGain * (1.0 - ratio(config_.delay_target, round_.least_queued)),
                      kLeastShrunk, kMostShrunk);
  }
  return 0.0;
}

double ReceiveWindow::grown_by() const {
  if (is_marked() || static_cast<double>(round_.most_unused) < kUsedShare * bytes_) {
    return 0.0;
  }
  const double room =
      1.0 - ratio(std::min(round_.least_queued, config_.delay_target), config_.delay_target);
  return packet_ + kGrowth * room * bytes_;
}

}  // namespace spillway::transport
