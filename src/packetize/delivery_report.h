// SPDX-License-Identifier: Apache-2.0
//
// What came of one message: loss is data, and this is the data. Counts only; made by Depacketizer.
//
// Every expected packet is in exactly one of whole, trimmed and missing; every coordinate in
// exactly one entry of coordinates_by_planes.
#pragma once

#include <array>
#include <cstddef>

#include "codec/plane_code.h"
#include "wire/data_header.h"

namespace spillway::packetize {

struct DeliveryReport {
  // Packets of the message.
  std::size_t expected = 0;
  std::size_t whole = 0;
  std::size_t trimmed = 0;
  std::size_t missing = 0;

  // Packets that were handed in beyond those, or not taken.
  std::size_t duplicates = 0;    // had nothing new
  std::size_t improved = 0;      // replaced a shorter copy of themselves
  std::size_t foreign = 0;       // of another job, epoch or message
  std::size_t inconsistent = 0;  // contradict the plan, or other packets of their row
  std::array<std::size_t, wire::kPacketFaults> faults{};
  std::size_t corrupt_tails = 0;  // taken, less a tail that failed its check

  // Coordinates of rotated rows, padding included, by how many whole planes of them came.
  std::array<std::size_t, codec::kMaxPlanes + 1> coordinates_by_planes{};
  std::size_t rows = 0;
  std::size_t lost_rows = 0;        // nothing came: decoded to zero
  std::size_t non_finite_rows = 0;  // held a NaN or an infinity: decoded to NaN

  std::size_t coordinates() const;
  // The share of coordinates of which nothing came, and of those that came short.
  double lost_fraction() const;
  double trimmed_fraction(unsigned planes_sent) const;
  // Whole planes per coordinate, on average.
  double mean_planes() const;
};

}  // namespace spillway::packetize
