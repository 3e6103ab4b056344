// SPDX-License-Identifier: Apache-2.0
//
// CRC32C for packets: over bytes, and over bytes that are being copied anyway.
//
// A CRC instruction takes two or three cycles, but one can start in every cycle. CRCs of several
// runs side by side therefore cost little more than one, and the copy fits into the gaps. Packets
// have such runs: their tail segments. On processors without the instruction ISA-L computes and
// memcpy copies, with the same results.
//
// States are raw: the caller inverts them at both ends if it needs to.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace spillway::wire {

std::uint32_t crc32c(std::uint32_t state, base::ByteView bytes);

// The same, while copying the bytes to `out`.
std::uint32_t copy_crc32c(std::uint32_t state, base::ByteView bytes, std::uint8_t* out);

// Runs of `length` bytes, `from_stride` apart, copied to places `to_stride` apart. The last run has
// `last_length` bytes.
struct StridedCopy {
  const std::uint8_t* from = nullptr;
  std::size_t from_stride = 0;
  std::uint8_t* to = nullptr;
  std::size_t to_stride = 0;
  std::size_t length = 0;
  std::size_t last_length = 0;  // at most length
};

// Copies one run per state and advances the states over them.
void copy_crc32c(const StridedCopy& copy, std::span<std::uint32_t> states);

}  // namespace spillway::wire
