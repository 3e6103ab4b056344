// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant/receipt.h"

#include <algorithm>

namespace spillway::collective {

bool has_receipts(const Operation& operation, const Group& group) {
  const Tolerance& tolerance = *operation.tolerance;
  // A server has no part of its own, so a row of which nothing came has no sum.
  const bool may_lack_rows = group.servers > 0 && tolerance.loss_bound_ppm > 0;
  return tolerance.least_contributors > 0.0 || tolerance.feedback_tensor != 0 || may_lack_rows;
}

bool Receipt::uses_nothing() const {
  return std::all_of(used.begin(), used.end(), [](std::uint16_t bytes) { return bytes == 0; });
}

std::vector<std::uint8_t> encode_receipt(const Receipt& receipt) {
  const ReceiptShape shape{receipt.absent.size(), receipt.used.size()};
  std::vector<std::uint8_t> bytes(shape.bytes());
  base::store_le(bytes.data(), receipt.contributors);
  for (std::size_t row = 0; row < shape.rows; ++row) {
    std::uint8_t& byte = bytes[2 + row / 8];
    byte = static_cast<std::uint8_t>(byte | (receipt.absent[row] ? 1U << (row % 8) : 0U));
  }
  std::uint8_t* to = bytes.data() + bytes.size() - 2 * shape.packets;
  for (const std::uint16_t used : receipt.used) {
    base::store_le(to, used);
    to += 2;
  }
  return bytes;
}

Receipt parse_receipt(base::ByteView bytes, const ReceiptShape& shape, std::uint16_t workers) {
  Receipt receipt;
  base::ByteReader reader(bytes);
  receipt.contributors = std::min(reader.read<std::uint16_t>(), workers);
  for (std::size_t row = 0; row < shape.rows; row += 8) {
    const auto bits = reader.read<std::uint8_t>();
    for (std::size_t bit = 0; bit < 8 && row + bit < shape.rows; ++bit) {
      receipt.absent.push_back((bits >> bit & 1) != 0);
    }
  }
  for (std::size_t packet = 0; packet < shape.packets; ++packet) {
    receipt.used.push_back(reader.read<std::uint16_t>());
  }
  return receipt;
}

}  // namespace spillway::collective
