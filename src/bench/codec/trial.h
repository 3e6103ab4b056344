// SPDX-License-Identifier: Apache-2.0
//
// One tensor through packets on an imagined fabric: what the network does to each packet is a
// function, what it cost is the result.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "codec/plane_code.h"
#include "packetize/depacketizer.h"
#include "packetize/packet_plan.h"

namespace spillway::bench {

// How many bytes of packet `index` (a UDP payload of `size` bytes) arrive; 0 for a lost packet.
using PacketFate = std::function<std::size_t(std::size_t index, std::size_t size)>;

struct TrialResult {
  double nmse = 0.0;
  packetize::DeliveryReport report;
};

// Sends `tensor` as message number `step`. Throws CommandError where no plan exists.
TrialResult run_trial(std::span<const float> tensor, const packetize::PacketLimits& fabric,
                      const packetize::Encoding& encoding, std::uint32_t step,
                      const PacketFate& fate);

// Fates for the common cases. A cut leaves `frame_bytes` of the Ethernet frame.
PacketFate cut_all(const packetize::PacketLimits& fabric, std::size_t frame_bytes);
// Every packet independently with probability `share`, cut (or lost where frame_bytes is 0).
PacketFate hit_some(const packetize::PacketLimits& fabric, double share, std::size_t frame_bytes,
                    std::uint64_t seed);

}  // namespace spillway::bench
