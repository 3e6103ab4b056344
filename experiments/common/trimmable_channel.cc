// SPDX-License-Identifier: Apache-2.0
#include "common/trimmable_channel.h"

#include <algorithm>

#include "codec/reference/trimmable.h"
#include "common/dice.h"
#include "wire/packet.h"

namespace spillway::experiments {
namespace {

using codec::reference::PacketFate;
using codec::reference::TrimmableMessage;

// Ethernet, IPv4 and UDP: with 45 bytes of heads they make the paper's trimmed frame of 87 bytes.
constexpr std::size_t kFrameOverhead = spillway_frame_overhead(0);

std::vector<PacketFate> draw_fates(std::size_t packets, double share, std::uint64_t seed) {
  Dice dice(share, seed);
  std::vector<PacketFate> fates(packets);
  for (PacketFate& fate : fates) {
    fate = dice.hits() ? PacketFate::kTrimmed : PacketFate::kWhole;
  }
  return fates;
}

std::uint64_t frame_bytes(const TrimmableMessage& message) {
  std::uint64_t bytes = 0;
  for (const auto& packet : message.packets) {
    bytes += packet.size() + kFrameOverhead;
  }
  return bytes;
}

}  // namespace

base::Result<TrimmableArrival> send_trimmable(std::string_view code, double share,
                                              std::uint64_t seed, std::span<const float> gradient) {
  const auto found = codec::reference::make_trimmable_encoding(code);
  if (!found.ok()) {
    return found.status();
  }
  const codec::reference::TrimmableEncoding& encoding = **found;
  TrimmableMessage message = encoding.encode(gradient, seed);
  const std::vector<PacketFate> fates = draw_fates(message.packets.size(), share, seed);
  TrimmableArrival arrival{std::vector<float>(gradient.size()), {}};
  arrival.delivery.packets = fates.size();
  arrival.delivery.hit =
      static_cast<std::uint64_t>(std::count(fates.begin(), fates.end(), PacketFate::kTrimmed));
  arrival.delivery.bytes_sent = frame_bytes(message);
  if (base::Status status = encoding.damage(message, fates, gradient.size()); !status.ok()) {
    return status;
  }
  arrival.delivery.bytes_arrived = frame_bytes(message);
  if (base::Status status = encoding.decode(message, fates, seed, arrival.values); !status.ok()) {
    return status;
  }
  return arrival;
}

}  // namespace spillway::experiments
