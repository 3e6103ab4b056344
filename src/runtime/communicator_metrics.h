// SPDX-License-Identifier: Apache-2.0
//
// What a communicator has counted since it was made. A plain value: whoever owns it copies it for
// others to look at. metrics_text.h writes it down.
//
// Every packet that was expected is in exactly one of whole, trimmed and missing; duplicates and
// retransmissions are on top.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/duration_histogram.h"
#include "runtime/operation_record.h"

namespace spillway::runtime {

struct OperationCounts {
  std::uint64_t done = 0;
  std::uint64_t failed = 0;
};

// What came, or did not, from one other rank.
struct PeerMetrics {
  std::uint32_t rank = 0;
  std::uint64_t lost_packets = 0;
  std::uint64_t trimmed_packets = 0;
  std::uint64_t late_operations = 0;  // that ended without all of its part
};

struct CommunicatorMetrics {
  std::string communicator = "world";
  std::uint32_t rank = 0;

  std::map<std::string, OperationCounts> operations{};  // by kind
  DurationHistogram durations{};
  std::uint64_t operations_in_flight = 0;
  std::uint64_t user_bytes_in = 0;  // handed in by the caller, and handed back
  std::uint64_t user_bytes_out = 0;
  std::uint64_t wire_bytes_sent = 0;
  std::uint64_t wire_bytes_received = 0;
  std::uint64_t packets_whole = 0;
  std::uint64_t packets_trimmed = 0;
  std::uint64_t packets_missing = 0;
  std::uint64_t packets_duplicate = 0;
  std::uint64_t packets_retransmitted = 0;
  std::uint64_t memory_bytes = 0;
  std::vector<PeerMetrics> peers{};

  // Adds an operation that has ended: all but its user data, the peers' part, and what is a state
  // rather than a count.
  void add(const OperationRecord& record);
};

}  // namespace spillway::runtime
