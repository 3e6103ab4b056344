// SPDX-License-Identifier: Apache-2.0
//
// Sends one tensor through packets on a simulated fabric: the caller's function decides what
// happens to each packet, and the result is the error.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "codec/plane_code.h"
#include "packetize/depacketizer.h"
#include "packetize/packet_plan.h"

namespace spillway::bench {

// How many bytes of packet `index` (a UDP payload of `size` bytes) arrive; 0 if it is lost.
using PacketFate = std::function<std::size_t(std::size_t index, std::size_t size)>;

struct TrialResult {
  double nmse = 0.0;
  packetize::DeliveryReport report;
};

// Sends `tensor` as message number `step`. Throws CommandError if no plan exists.
TrialResult run_trial(std::span<const float> tensor, const packetize::PacketLimits& fabric,
                      const packetize::Encoding& encoding, std::uint32_t step,
                      const PacketFate& fate);

// Fates for common cases. A cut leaves `frame_bytes` of the Ethernet frame.
PacketFate cut_all(const packetize::PacketLimits& fabric, std::size_t frame_bytes);
// Hits every packet independently with probability `share`: cuts it, or drops it if frame_bytes =
// 0.
PacketFate hit_some(const packetize::PacketLimits& fabric, double share, std::size_t frame_bytes,
                    std::uint64_t seed);

}  // namespace spillway::bench
