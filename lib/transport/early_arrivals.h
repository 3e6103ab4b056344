// SPDX-License-Identifier: Apache-2.0
//
// Packets that came before their message was expected: kept for a while, so that a rank that is a
// little ahead of the others need not send twice.
//
// Bounded by bytes over all senders; the oldest messages are dropped first. Few messages are kept
// at a time, so lookups are linear. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "transport/endpoint.h"

namespace spillway::transport {

// The packets kept of one message, in the order of arrival.
struct EarlyMessage {
  struct Data {
    DataArrival arrival;  // view() points it at the fields below
    wire::OpenedPacket packet;
    std::vector<std::uint8_t> bytes;
    base::Instant at;

    DataArrival view() const {
      DataArrival seen = arrival;
      seen.packet = arrival.packet != nullptr ? &packet : nullptr;
      seen.bytes = bytes;
      return seen;
    }
  };

  wire::MessageId id;
  std::vector<Data> data;
  std::optional<wire::ControlPacket> probe;  // the latest
  std::size_t kept_bytes = 0;
};

class EarlyArrivals {
 public:
  explicit EarlyArrivals(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  bool is_on() const { return max_bytes_ > 0; }
  void keep(const DataArrival& arrival, base::Instant now);
  void keep(const wire::ControlPacket& probe);
  // Removes and returns what was kept of a message.
  std::optional<EarlyMessage> take(const wire::MessageId& id);
  std::size_t kept_bytes() const { return kept_bytes_; }
  // More than half of the room is taken.
  bool is_filling() const { return kept_bytes_ * 2 > max_bytes_; }

 private:
  // Overhead of an entry, besides its bytes.
  static constexpr std::size_t kEntryBytes = sizeof(EarlyMessage::Data);

  EarlyMessage& message(const wire::MessageId& id);
  void add(EarlyMessage& message, std::size_t bytes);

  std::size_t max_bytes_;
  std::size_t kept_bytes_ = 0;
  std::deque<EarlyMessage> messages_;  // the oldest first
};

}  // namespace spillway::transport
