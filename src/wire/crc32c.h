// SPDX-License-Identifier: Apache-2.0
//
// CRC32C as packets need it: of bytes, and of bytes that are being copied anyway.
//
// A processor's CRC instruction takes two or three cycles but can be started every cycle, so the
// CRCs of several runs computed side by side cost little more than that of one; and a copy fits
// into the gaps. Packets have such runs: their tail segments. Where the instruction is missing,
// ISA-L computes and memcpy copies. Both give the same numbers.
//
// Raw states: no inversion at either end; the caller's business.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace spillway::wire {

std::uint32_t crc32c(std::uint32_t state, base::ByteView bytes);

// The same, and the bytes are copied to `out`.
std::uint32_t copy_crc32c(std::uint32_t state, base::ByteView bytes, std::uint8_t* out);

// Runs of `length` bytes, the last of `last_length`, `from_stride` apart, copied to places
// `to_stride` apart.
struct StridedCopy {
  const std::uint8_t* from = nullptr;
  std::size_t from_stride = 0;
  std::uint8_t* to = nullptr;
  std::size_t to_stride = 0;
  std::size_t length = 0;
  std::size_t last_length = 0;  // not above length
};

// Copies a run for each state and advances the states over them.
void copy_crc32c(const StridedCopy& copy, std::span<std::uint32_t> states);

}  // namespace spillway::wire
