// SPDX-License-Identifier: Apache-2.0
//
// What an owner tells every rank of a piece besides its sum: who is in it, and what of the rank's
// own contribution is. Where ranks may be left out or keep what did not arrive; docs/algorithms.md
// says when receipts are sent, and what they cost.
//
//   0  contributors (2)     the fewest ranks in any row of the sum that has some
//   2  absent rows          a bit each, the first row's the lowest: nobody is in it, it is zero
//   .  used (2 per packet)  with error feedback: bytes of planes of each packet of the receiver's
//                           contribution that are in the sum; 0 for those of rows that do not count
//
// Both ends know a receipt's shape from its piece. Numbers are little-endian. Plain values and pure
// functions; nothing that was received is believed beyond its range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "collective/operation.h"

namespace spillway::collective {

// Whether receipts are sent at all: where some rank may not be in a sum and only the owner knows,
// or a rank wants back what is not.
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
// Of shape.bytes() bytes, by an owner of a group of so many workers.
Receipt parse_receipt(base::ByteView bytes, const ReceiptShape& shape, std::uint16_t workers);

}  // namespace spillway::collective
