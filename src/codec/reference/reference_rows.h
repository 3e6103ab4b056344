// SPDX-License-Identifier: Apache-2.0
//
// The rows of the rotating reference codecs: codec/row_layout.h with rows of 2^15, as the papers
// have them, and the total length of the rows with their padding. Pure functions.
#pragma once

#include <cstddef>

#include "codec/row_layout.h"

namespace spillway::codec::reference {

inline RowLayout reference_rows(std::size_t tensor_length) {
  return RowLayout(tensor_length, kMaxRowLog2);
}

inline std::size_t padded_length(const RowLayout& rows) {
  if (rows.row_count() == 0) {
    return 0;
  }
  const Row last = rows.row(rows.row_count() - 1);
  return last.offset + last.length();
}

}  // namespace spillway::codec::reference
