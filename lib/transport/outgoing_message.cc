// SPDX-License-Identifier: Apache-2.0
#include "transport/outgoing_message.h"

#include <algorithm>

#include "base/check.h"

namespace spillway::transport {

void OutgoingMessage::take_next(wire::DataStamp& stamp) {
  SPILLWAY_CHECK(has_packet());
  stamp.message = id;
  stamp.priority = priority;
  stamp.retransmit = next_position == packets;
  const std::uint32_t packet =
      stamp.retransmit ? repeats[next_repeat++] : order.packet_at(next_position++);
  stamp.packet = static_cast<std::uint16_t>(packet);
  stamp.importance = importance_of(packet);
  stamp.last = all_sent();
  ++transmitted;
}

void OutgoingMessage::plan_repeats(const wire::ControlPacket& packet) {
  const wire::BitmapRange& range = packet.bitmap.range;
  if (repeat_generation != packet.generation) {
    repeat_generation = packet.generation;
    repeats.clear();
    next_repeat = 0;
    const std::uint32_t unforgiven =
        packet.bitmap.missing - std::min(packet.bitmap.missing, packet.bitmap.allowed);
    // A few more than needed: some retransmissions will be lost as well.
    repeat_quota = unforgiven == 0 ? 0 : unforgiven + unforgiven / 8 + 1;
  }
  const auto added_begin = static_cast<std::ptrdiff_t>(repeats.size());
  const std::uint32_t end = std::min(range.first + range.count, packets);
  // A receiver that sends ranges twice cannot make the list longer than the message.
  for (std::uint32_t index = range.first; index < end && repeats.size() < packets; ++index) {
    if (!range.delivered(index)) {
      repeats.push_back(static_cast<std::uint16_t>(index));
    }
  }
  // The most important first; only they are retransmitted beyond the quota.
  std::stable_sort(
      repeats.begin() + added_begin, repeats.end(),
      [this](std::uint16_t a, std::uint16_t b) { return importance_of(a) > importance_of(b); });
  std::size_t kept = static_cast<std::size_t>(added_begin);
  while (kept < repeats.size() &&
         (repeat_quota > 0 || importance_of(repeats[kept]) == SPILLWAY_IMPORTANCE_REQUIRED)) {
    repeat_quota -= repeat_quota > 0 ? 1 : 0;
    ++kept;
  }
  repeats.resize(kept);
}

std::size_t OutgoingMessage::memory_bytes() const {
  return packet_importance.capacity() + repeats.capacity() * sizeof(std::uint16_t);
}

}  // namespace spillway::transport
