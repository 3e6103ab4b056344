// SPDX-License-Identifier: Apache-2.0
//
// What a listener counted of a prober's burst: how many datagrams arrived with which length and
// DSCP, and how many frames only the wire saw. It travels behind the header of a probe:
//
//   flags 4 (bit 0: watches) | overflowed 4 | others 4 | stale 4
//   stale_smallest 2 | stale_largest 2 | kinds 1 | zero 3
//   interface 16 | host 64 (padded with zeros)
//   kMostKinds times: length 2 | dscp 1 | zero 1 | count 4
//
// Names end up in commands that people copy, so a summary whose names hold anything but letters,
// digits and -._:@ is refused. Bounded: kMostKinds lengths, the rest is counted together. Plain
// value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace spillway::doctor {

struct ArrivalKind {
  std::uint16_t length = 0;  // of the UDP payload
  std::uint8_t dscp = 0;
  std::uint32_t count = 0;

  friend bool operator==(const ArrivalKind&, const ArrivalKind&) = default;
};

struct ArrivalSummary {
  static constexpr std::size_t kMostKinds = 16;

  bool watches = false;              // the listener may look at the wire
  std::uint32_t overflowed = 0;      // datagrams lost at the listener's own socket
  std::uint32_t others = 0;          // arrivals of yet other kinds
  std::uint32_t stale = 0;           // frames shorter than their IP or UDP header says
  std::uint16_t stale_smallest = 0;  // their sizes, from the Ethernet header on
  std::uint16_t stale_largest = 0;
  std::uint8_t kind_count = 0;
  std::array<ArrivalKind, kMostKinds> kinds{};
  std::string interface {};  // where stale frames came in
  std::string host{};        // the listener's name

  std::span<const ArrivalKind> seen() const { return std::span(kinds).first(kind_count); }

  void count(std::size_t length, std::uint8_t dscp);
  void count_stale(std::size_t frame_bytes, std::string_view on_interface);

  friend bool operator==(const ArrivalSummary&, const ArrivalSummary&) = default;
};

inline constexpr std::size_t kSummaryBodyBytes = 232;

// Behind the header of a probe of at least kSummaryBytes.
void write_summary(const ArrivalSummary& summary, base::MutableByteView probe);
std::optional<ArrivalSummary> read_summary(base::ByteView probe);

// `name` with what a summary must not hold replaced, as long as it may be.
std::string plain_name(std::string_view name);

}  // namespace spillway::doctor
