// SPDX-License-Identifier: Apache-2.0
//
// A communicator's counts since its creation, and their text in Prometheus' format (0.0.4). Names
// begin with spillway_communicator_, a switch's with spillway_switch_. Every sample carries the
// labels communicator and rank.
//
// Every expected packet is in exactly one of whole, trimmed and missing; duplicates and
// retransmissions are extra. Durations are counted in fixed buckets, which add up over ranks.
//
// Plain values and pure functions: the owner copies the counts for other threads.
//
// Limits: kMaxPeers series per communicator and count, for the ranks with most losses and delays;
// the rest is summed as peer="other". In larger jobs a rank can enter the named ones later: "other"
// then drops, which Prometheus reads as a counter reset.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "observe/operation_record.h"

namespace spillway::runtime {

class DurationHistogram {
 public:
  // Inclusive upper bounds, from a small operation on a fast network to a hang.
  static constexpr std::array<base::Duration, 16> kBuckets = {
      base::microseconds(100), base::microseconds(250),  base::microseconds(500),
      base::milliseconds(1),   base::microseconds(2500), base::milliseconds(5),
      base::milliseconds(10),  base::milliseconds(25),   base::milliseconds(50),
      base::milliseconds(100), base::milliseconds(250),  base::milliseconds(500),
      base::seconds(1),        base::seconds(5),         base::seconds(10),
      base::seconds(60)};

  void add(base::Duration duration);

  // Number of durations up to kBuckets[bucket].
  std::uint64_t count_up_to(std::size_t bucket) const;
  std::uint64_t count() const;
  base::Duration sum() const { return sum_; }

 private:
  std::array<std::uint64_t, kBuckets.size() + 1> counts_{};  // the last: longer than all bounds
  base::Duration sum_;
};

struct OperationCounts {
  std::uint64_t done = 0;
  std::uint64_t failed = 0;
};

// Packets and operations of one peer.
struct PeerMetrics {
  std::uint32_t rank = 0;
  std::uint64_t lost_packets = 0;
  std::uint64_t trimmed_packets = 0;
  std::uint64_t late_operations = 0;  // completed without all of its part
};

struct CommunicatorMetrics {
  std::string communicator = "world";
  std::uint32_t rank = 0;

  std::map<std::string, OperationCounts> operations{};  // by kind
  DurationHistogram durations{};
  std::uint64_t operations_in_flight = 0;
  std::uint64_t user_bytes_in = 0;   // handed in by the caller
  std::uint64_t user_bytes_out = 0;  // handed back
  std::uint64_t wire_bytes_sent = 0;
  std::uint64_t wire_bytes_received = 0;
  std::uint64_t packets_whole = 0;
  std::uint64_t packets_trimmed = 0;
  std::uint64_t packets_missing = 0;
  std::uint64_t packets_duplicate = 0;
  std::uint64_t packets_retransmitted = 0;
  // Rejected input: from hosts that are no peer; damaged, forged or replayed packets; data that
  // came before; ICMP refusals of packets never sent; other ICMP messages.
  std::uint64_t strangers = 0;
  std::uint64_t bad_packets = 0;
  std::uint64_t repeated_packets = 0;
  std::uint64_t forged_refusals = 0;
  std::uint64_t ignored_icmp = 0;
  std::uint64_t memory_bytes = 0;
  std::vector<PeerMetrics> peers{};

  // Adds an operation that has ended. Does not touch user bytes, peers or gauges.
  void add(const OperationRecord& record);
};

inline constexpr std::size_t kMaxPeers = 64;

std::string metrics_text(std::span<const CommunicatorMetrics> communicators);

// `value` as a label: valid UTF-8, with \, " and line ends escaped.
std::string escaped_label(std::string_view value);

}  // namespace spillway::runtime
