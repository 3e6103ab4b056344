// SPDX-License-Identifier: Apache-2.0
//
// What came of a message, packet by packet: how many planes of each, how many packets count as
// delivered, how many of those are important ones. Order and repeats make no difference: a packet
// counts once, and a longer copy replaces a shorter one.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/message.h"

namespace spillway::transport {

class PacketLedger {
 public:
  enum class Entry : std::uint8_t { kNew, kImproved, kDuplicate, kTooFew };

  PacketLedger() = default;
  PacketLedger(std::uint32_t packets, std::uint8_t planes_sent, std::uint8_t min_planes)
      : planes_sent_(planes_sent), min_planes_(min_planes), planes_(packets, 0) {}

  // `packet` < packets(); `planes` > 0.
  Entry record(std::uint32_t packet, std::uint8_t planes, bool is_important);

  std::uint32_t packets() const { return static_cast<std::uint32_t>(planes_.size()); }
  std::uint32_t delivered() const { return delivered_; }
  std::uint32_t missing() const { return packets() - delivered_; }
  std::uint32_t whole() const { return whole_; }
  std::uint32_t important_delivered() const { return important_; }
  bool is_whole(std::uint32_t packet) const { return planes_[packet] >= planes_sent_; }
  bool is_delivered(std::uint32_t packet) const { return planes_[packet] >= min_planes_; }

  // Fills `range` with the first stretch at or after `from` that has a packet missing. False: none.
  bool next_missing_range(std::uint32_t from, wire::BitmapRange& range) const;

  std::vector<std::uint8_t> take_planes() { return std::move(planes_); }

 private:
  std::uint8_t planes_sent_ = 0;
  std::uint8_t min_planes_ = 1;
  std::uint32_t delivered_ = 0;
  std::uint32_t whole_ = 0;
  std::uint32_t important_ = 0;
  std::vector<std::uint8_t> planes_;
};

}  // namespace spillway::transport
