// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/lateness.h"

#include <algorithm>
#include <bit>

namespace spillway::fabric {

// Bucket 0 is for lateness below a microsecond. Above it, buckets are linear quarters of each
// doubling: close enough, and no logarithm is needed.
std::size_t Lateness::bucket_of(base::Duration late) {
  const auto quarters = static_cast<std::uint64_t>(late.count()) * kPerDoubling / 1'000;
  if (quarters < kPerDoubling) {
    return 0;
  }
  const auto doubling = static_cast<std::size_t>(std::bit_width(quarters)) - 3;
  const std::size_t quarter = (quarters >> doubling) - kPerDoubling;
  return std::min(doubling * kPerDoubling + quarter + 1, kBuckets - 1);
}

base::Duration Lateness::end_of(std::size_t bucket) {
  const std::size_t doubling = (bucket == 0 ? 0 : bucket - 1) / kPerDoubling;
  const std::size_t quarter = bucket == 0 ? 0 : (bucket - 1) % kPerDoubling + 1;
  const std::uint64_t quarters = (kPerDoubling + quarter) << doubling;
  return base::nanoseconds(static_cast<std::int64_t>(quarters * 1'000 / kPerDoubling));
}

void Lateness::add(base::Duration late) {
  late = std::max(late, base::Duration());
  ++count_;
  sum_ += late;
  latest_ = std::max(latest_, late);
  ++buckets_[bucket_of(late)];
}

void Lateness::add(const Lateness& other) {
  count_ += other.count_;
  sum_ += other.sum_;
  latest_ = std::max(latest_, other.latest_);
  for (std::size_t i = 0; i < kBuckets; ++i) {
    buckets_[i] += other.buckets_[i];
  }
}

base::Duration Lateness::mean() const {
  return count_ == 0 ? base::Duration()
                     : base::nanoseconds(sum_.count() / static_cast<std::int64_t>(count_));
}

base::Duration Lateness::percentile(unsigned percent) const {
  const std::uint64_t wanted = (count_ * percent + 99) / 100;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets && count_ > 0; ++i) {
    seen += buckets_[i];
    if (seen >= wanted) {
      return std::min(end_of(i), latest_);
    }
  }
  return base::Duration();
}

}  // namespace spillway::fabric
