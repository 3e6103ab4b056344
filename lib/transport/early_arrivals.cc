// SPDX-License-Identifier: Apache-2.0
#include "transport/early_arrivals.h"

#include <algorithm>

namespace spillway::transport {

EarlyMessage& EarlyArrivals::message(const wire::MessageId& id) {
  const auto found = std::find_if(messages_.rbegin(), messages_.rend(),
                                  [&](const EarlyMessage& each) { return each.id == id; });
  if (found != messages_.rend()) {
    return *found;
  }
  messages_.emplace_back().id = id;
  return messages_.back();
}

void EarlyArrivals::add(EarlyMessage& message, std::size_t bytes) {
  message.kept_bytes += bytes;
  kept_bytes_ += bytes;
  while (kept_bytes_ > max_bytes_) {
    kept_bytes_ -= messages_.front().kept_bytes;
    messages_.pop_front();
  }
}

void EarlyArrivals::keep(const DataArrival& arrival, base::Instant now) {
  if (arrival.bytes.size() + kEntryBytes > max_bytes_) {
    return;
  }
  EarlyMessage& kept = message(arrival.stamp.message);
  EarlyMessage::Data& data = kept.data.emplace_back();
  data.arrival = arrival;
  data.at = now;
  if (arrival.packet != nullptr) {
    data.packet = *arrival.packet;
  }
  data.bytes.assign(arrival.bytes.begin(), arrival.bytes.end());
  add(kept, kEntryBytes + data.bytes.size());
}

void EarlyArrivals::keep(const wire::ControlPacket& probe) {
  if (sizeof(probe) > max_bytes_) {
    return;
  }
  EarlyMessage& kept = message(probe.message);
  const bool is_first = !kept.probe;
  kept.probe = probe;
  if (is_first) {
    add(kept, sizeof(probe));
  }
}

std::optional<EarlyMessage> EarlyArrivals::take(const wire::MessageId& id) {
  const auto found = std::find_if(messages_.begin(), messages_.end(),
                                  [&](const EarlyMessage& each) { return each.id == id; });
  if (found == messages_.end()) {
    return std::nullopt;
  }
  EarlyMessage taken = std::move(*found);
  messages_.erase(found);
  kept_bytes_ -= taken.kept_bytes;
  return taken;
}

}  // namespace spillway::transport
