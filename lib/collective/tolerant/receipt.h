// SPDX-License-Identifier: Apache-2.0
//
// A receipt comes from a piece's owner beside the sum. It tells a rank how many ranks are in the
// sum, and how much of the receiver's own contribution. Sent where ranks may be left out or keep
// what did not arrive; docs/algorithms.md says when, and at what cost.
//
//   0  contributors (2)     the fewest ranks in any row of the sum that has some
//   2  absent rows          a bit each, the first row's the lowest: no rank is in it, it is zero
//   .  used (2 per packet)  with error feedback: bytes of planes of each packet of the receiver's
//                           contribution that are in the sum; 0 for those of rows that do not count
//
// Both ends know a receipt's shape from its piece. Numbers are little-endian. Plain values and pure
// functions; received numbers are limited to their range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "collective/operation.h"

namespace spillway::collective {

// True if receipts are sent: if a rank may not be in a sum and only the owner knows, or a rank
// keeps what is not in it.
bool has_receipts(const Operation& operation, const Group& group);

struct ReceiptShape {
  std::size_t rows = 0;
  std::size_t packets = 0;  // of the contribution; 0 without error feedback

  std::size_t bytes() const { return 2 + (rows + 7) / 8 + 2 * packets; }
};

struct Receipt {
  std::uint16_t contributors = 0;
  std::vector<bool> absent;         // by row
  std::vector<std::uint16_t> used;  // by packet

  bool uses_nothing() const;
};

std::vector<std::uint8_t> encode_receipt(const Receipt& receipt);
// Reads a receipt of shape.bytes() bytes, from an owner in a group of so many workers.
Receipt parse_receipt(base::ByteView bytes, const ReceiptShape& shape, std::uint16_t workers);

}  // namespace spillway::collective
