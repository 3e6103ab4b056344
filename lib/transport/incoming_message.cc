// SPDX-License-Identifier: Apache-2.0
#include "transport/incoming_message.h"

#include <algorithm>

#include "base/check.h"

namespace spillway::transport {

PacketLedger::Entry PacketLedger::record(std::uint32_t packet, std::uint8_t planes,
                                         bool is_important) {
  SPILLWAY_CHECK(packet < packets() && planes > 0);
  const std::uint8_t before = planes_[packet];
  if (planes <= before) {
    return before >= min_planes_ ? Entry::kDuplicate : Entry::kTooFew;
  }
  planes_[packet] = planes;
  whole_ += planes >= planes_sent_ ? 1 : 0;
  if (planes < min_planes_) {
    return Entry::kTooFew;
  }
  if (before >= min_planes_) {
    return Entry::kImproved;
  }
  ++delivered_;
  important_ += is_important ? 1 : 0;
  return Entry::kNew;
}

bool PacketLedger::next_missing_range(std::uint32_t from, wire::BitmapRange& range) const {
  const auto is_missing = [this](std::uint8_t planes) { return planes < min_planes_; };
  const auto first =
      std::find_if(planes_.begin() + std::min(from, packets()), planes_.end(), is_missing);
  if (first == planes_.end()) {
    return false;
  }
  range.first = static_cast<std::uint32_t>(first - planes_.begin());
  range.count = std::min<std::uint32_t>(packets() - range.first, SPILLWAY_MAX_BITMAP_BYTES * 8);
  std::fill_n(range.bits.begin(), (range.count + 7) / 8, std::uint8_t{0});
  for (std::uint32_t bit = 0; bit < range.count; ++bit) {
    if (is_delivered(range.first + bit)) {
      range.bits[bit / 8] |= static_cast<std::uint8_t>(1U << (bit % 8));
    }
  }
  return true;
}

}  // namespace spillway::transport
