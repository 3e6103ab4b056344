// SPDX-License-Identifier: Apache-2.0
//
// Learns how long things usually take, and which ranks are usually late; deadlines follow from it.
// A wait that was cut off counts only as long as the ranks took that were waited for, so one slow
// rank does not teach all others patience. When many become slower, they are waited for, and the
// deadline follows.
//
// Bounded: kWindow durations each, kMaxTensors entries. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/units.h"

namespace spillway::collective {

class UsualDuration {
 public:
  static constexpr std::size_t kWindow = 32;
  static constexpr std::size_t kMin = 8;  // durations before there is a usual one

  void add(base::Duration duration) {
    durations_[added_ % kWindow] = duration;
    ++added_;
  }
  // The duration that three of four stayed below, plus an eighth of it or twice the spread, and
  // some slack.
  std::optional<base::Duration> deadline() const {
    if (added_ < kMin) {
      return std::nullopt;
    }
    std::array<base::Duration, kWindow> sorted = durations_;
    const std::size_t size = std::min<std::size_t>(added_, kWindow);
    std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(size));
    const base::Duration usual = sorted[size * 3 / 4];
    const base::Duration spread = usual - sorted[size / 2];
    return usual + std::max(usual / 8, spread * 2) + kSlack;
  }

 private:
  static constexpr base::Duration kSlack = base::microseconds(200);  // for the scheduler

  std::array<base::Duration, kWindow> durations_{};
  std::uint64_t added_ = 0;
};

// For the two halves of an all-reduce:
struct Pace {
  UsualDuration reduce;  // from its start until all contributions to a rank's own shard are there
  UsualDuration gather;  // from then on until all shards are
  // By rank: nothing from it came in time last time. It is not waited for until something does.
  std::vector<bool> is_lagging;
  bool was_left_behind = false;  // the others did not wait for this rank's shard last time
};

// Paces by key: operations with one key are alike.
class PaceBook {
 public:
  Pace& of(std::uint64_t key) {
    if (paces_.size() >= kMaxTensors && !paces_.contains(key)) {
      paces_.erase(paces_.begin());
    }
    return paces_[key];
  }

 private:
  static constexpr std::size_t kMaxTensors = 4096;
  std::map<std::uint64_t, Pace> paces_;
};

}  // namespace spillway::collective
