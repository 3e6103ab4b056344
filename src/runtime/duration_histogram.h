// SPDX-License-Identifier: Apache-2.0
//
// How long operations took, as Prometheus counts it: in fixed buckets, which add up over ranks.
// Plain value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace spillway::runtime {

class DurationHistogram {
 public:
  // Their upper ends, which belong to them: from a small operation on a fast network to a hang.
  static constexpr std::array<base::Duration, 16> kBuckets = {
      base::microseconds(100), base::microseconds(250),  base::microseconds(500),
      base::milliseconds(1),   base::microseconds(2500), base::milliseconds(5),
      base::milliseconds(10),  base::milliseconds(25),   base::milliseconds(50),
      base::milliseconds(100), base::milliseconds(250),  base::milliseconds(500),
      base::seconds(1),        base::seconds(5),         base::seconds(10),
      base::seconds(60)};

  void add(base::Duration duration);

  // How many took at most kBuckets[bucket].
  std::uint64_t count_up_to(std::size_t bucket) const;
  std::uint64_t count() const;
  base::Duration sum() const { return sum_; }

 private:
  std::array<std::uint64_t, kBuckets.size() + 1> counts_{};  // the last: longer than all
  base::Duration sum_;
};

}  // namespace spillway::runtime
