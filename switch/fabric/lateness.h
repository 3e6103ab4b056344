// SPDX-License-Identifier: Apache-2.0
//
// Lateness of any number of frames in constant memory: count, mean, maximum, and a histogram. Its
// buckets grow by a quarter of a doubling, so a percentile is at most a quarter above the truth.
// Early frames count as on time. Ports' values can be added up. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace spillway::fabric {

class Lateness {
 public:
  void add(base::Duration late);
  void add(const Lateness& other);

  std::uint64_t count() const { return count_; }
  base::Duration latest() const { return latest_; }
  base::Duration mean() const;
  // The lateness that `percent` % of the frames did not exceed.
  base::Duration percentile(unsigned percent) const;

 private:
  static constexpr std::size_t kPerDoubling = 4;
  static constexpr std::size_t kBuckets = 30 * kPerDoubling;  // from 1 us to 17 minutes

  static std::size_t bucket_of(base::Duration late);
  static base::Duration end_of(std::size_t bucket);

  std::uint64_t count_ = 0;
  base::Duration sum_;
  base::Duration latest_;
  std::array<std::uint64_t, kBuckets> buckets_{};
};

}  // namespace spillway::fabric
